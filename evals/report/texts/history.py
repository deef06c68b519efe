"""The words of a business's overview."""

from evals.report.texts.text import Text

HISTORY: dict[str, Text] = {
    "history_title": Text("Decisions and rollouts", "评审与上线记录"),
    "history_now": Text("Since {at}.", "自{at}起。"),
    "history_lead": Text(
        "{decisions:decision/decisions} so far; {promoted} of them found a version fit for service.",
        "至今共 {decisions} 次评审，其中 {promoted} 次认为新版本可以上线。",
    ),
    "history_none": Text("Nothing has been decided yet", "还没有评审结论"),
    "history_none_lead": Text(
        "The first page comes with the first night.",
        "第一晚运行之后，这里会出现第一份报告。",
    ),
    "history_list": Text("All of them, newest first", "全部记录（最新在前）"),
    "said_decision_promote": Text("Version {version} is fit for service", "版本 {version} 可以上线"),
    "said_decision_reject": Text("Version {version} stays out", "版本 {version} 不上线"),
    "said_decision_inconclusive": Text("Version {version} is not proven", "版本 {version} 证据不足"),
    "said_rollout_canary": Text("Version {version} is on trial with users", "版本 {version} 正在试用"),
    "said_rollout_paused": Text("The trial of version {version} is paused", "版本 {version} 的试用已暂停"),
    "said_rollout_done": Text("Version {version} went into service for everyone", "版本 {version} 已面向全部用户"),
    "said_rollout_rolled_back": Text("Version {version} was taken back", "版本 {version} 已撤回"),
    "said_rollout_ended": Text("The A/B test of version {version} is over", "版本 {version} 的 A/B 测试已结束"),
    "said_night_too_few_rows": Text(
        "Nothing was trained: {rows} of {needed:example/examples} needed",
        "没有训练：需要 {needed} 条样本，只有 {rows} 条",
    ),
    "history_nights": Text("like {n:night/nights} before it", "此前连续 {n} 晚同样没有训练"),
    "kind_night": Text("Night", "夜间运行"),
    "kind_decision": Text("Decision", "评审"),
    "kind_rollout": Text("Rollout", "上线"),
    "trend_title": Text("How much better each new version was", "每次新版本的改进幅度"),
    "trend_lead": Text(
        "{metric}, new version against the one in service at the time. The dot is the measured difference, the line is "
        "where the true one lies with {confidence} certainty.",
        "{metric}：新版本与当时在用版本之差。圆点是测得的差距，线段是真实差距以 {confidence} 的把握所在的范围。",
    ),
    "trend_wider": Text(
        "Longer than the plot: the lines of versions {versions}.", "线段超出图的范围的版本：{versions}。"
    ),
    "trend_other": Text(
        "{n:decision/decisions} without such a measurement not drawn.", "另有 {n} 次评审没有这项测量，未画出。"
    ),
    "trend_newest": Text("The newest {n} are drawn.", "图中为最近 {n} 次。"),
    "trend_point": Text("Version {version}, {at}: {told}", "版本 {version}，{at}：{told}"),
}
