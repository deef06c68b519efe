"""The words that several pages share."""

from evals.report.texts.text import Text

COMMON: dict[str, Text] = {
    "overview": Text("All decisions and rollouts", "全部评审与上线记录"),
    "generated": Text("Made {at}", "生成于 {at}"),
    "base_model": Text("the base model", "基础模型"),
    "version_n": Text("version {version}", "版本 {version}"),
    "in_service": Text("In service", "当前版本"),
    "candidate": Text("New", "新版本"),
    "details": Text("For engineers", "技术细节"),
    "result": Text("Result", "结果"),
    "passed": Text("fine", "正常"),
    "failed": Text("worse than allowed", "超出允许范围"),
    "short": Text("not reached", "未达到"),
    "open": Text("not certain", "不能确定"),
    "no_data": Text("no data", "没有数据"),
    "badge_promote": Text("May go into service", "可以上线"),
    "badge_reject": Text("Stays out", "不上线"),
    "badge_inconclusive": Text("Not proven", "证据不足"),
    "badge_canary": Text("Trial running", "试用中"),
    "badge_paused": Text("Paused", "已暂停"),
    "badge_done": Text("In service", "已上线"),
    "badge_rolled_back": Text("Taken back", "已撤回"),
    "badge_ended": Text("A/B test over", "A/B 测试结束"),
    "badge_too_few_rows": Text("Nothing trained", "没有训练"),
    "axis_worse": Text("← worse", "← 变差"),
    "axis_better": Text("better →", "变好 →"),
    "axis_zero": Text("no difference", "无差别"),
}
