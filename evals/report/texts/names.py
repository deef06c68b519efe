"""What a person calls metrics, signals, reasons and kinds of personal data."""

from evals.metrics import METRICS, Metric
from evals.report.texts.text import Text
from pipeline.records import DropReason, FeedbackKind

METRIC_NAMES: dict[str, Metric] = METRICS | {
    "hard_failure": Metric("share", -1, "Failed answers", "回答失败"),
    "hard_failure_limit": Metric("share", -1, "Failed answers, whoever is compared", "回答失败（绝对上限）"),
    "ttft_p50": Metric("share", -1, "Waits for an answer, usually", "等待回答（一般情况）"),
    "ttft_p90": Metric("share", -1, "Waits for an answer, slowest tenth", "等待回答（最慢的一成）"),
    "ttft_p99": Metric("share", -1, "Waits for an answer, slowest hundredth", "等待回答（最慢的百分之一）"),
    "tpot_p50": Metric("share", -1, "Slow writing, usually", "输出过慢（一般情况）"),
    "tpot_p90": Metric("share", -1, "Slow writing, slowest tenth", "输出过慢（最慢的一成）"),
    "tpot_p99": Metric("share", -1, "Slow writing, slowest hundredth", "输出过慢（最慢的百分之一）"),
    "ttft_limit": Metric("share", -1, "Slow starts, whoever is compared", "开始回答过慢（绝对上限）"),
    "output_length": Metric("share", -1, "Overlong answers", "回答过长"),
    "regeneration": Metric("share", -1, "Asked for another answer", "要求重新回答"),
    "thumb_up": Metric("share", 1, "Thumbs up", "好评"),
    "shadow_agreement": Metric("score", 1, "Likeness to the answers that users got", "与用户所得回答的相似度"),
    "thumb_down": Metric("share", -1, "Thumbs down", "差评"),
    "edit": Metric("share", -1, "Answers rewritten by users", "被用户改写"),
    "outcome_failed": Metric("share", -1, "Task not solved", "任务未解决"),
    "sample_ratio": Metric("share", -1, "Users shared out evenly", "用户分配均匀"),
    "assignment": Metric("share", -1, "Users outside the group they were drawn for", "未按抽签分组的用户"),
}
"""All metrics by the name that a person reads: of the gate, and of a rollout (there, higher is always worse)."""

SIGNALS: dict[FeedbackKind, Text] = {
    FeedbackKind.THUMB: Text("Thumbs up or down", "点赞或点踩"),
    FeedbackKind.RATING: Text("Ratings from 1 to 5", "1 到 5 分评分"),
    FeedbackKind.EDIT: Text("Answers they rewrote", "改写了回答"),
    FeedbackKind.REGENERATE: Text("Asked for another answer", "要求重新回答"),
    FeedbackKind.CHOICE: Text("Chose one answer over another", "在两个回答中选择"),
    FeedbackKind.ABORT: Text("Stopped an answer midway", "中途停止回答"),
    FeedbackKind.OUTCOME: Text("Whether the task was solved", "任务是否解决"),
    FeedbackKind.COMMENT: Text("Comments", "文字评论"),
}

DROPS: dict[DropReason, Text] = {
    DropReason.NO_FEEDBACK: Text("Nobody said anything about it", "没有收到反馈"),
    DropReason.WITHDRAWN: Text("The feedback was taken back", "反馈已撤回"),
    DropReason.CONFLICT: Text("Users disagreed", "用户意见不一"),
    DropReason.WEAK_EVIDENCE: Text("Too weak a sign to learn from", "信号太弱，不足以学习"),
    DropReason.REPLACED: Text("Replaced by another answer that nobody praised", "已被重新回答，且新回答无好评"),
    DropReason.NOT_FINAL: Text("Not the last answer of its turn", "不是该轮的最终回答"),
    DropReason.ERROR_ANSWER: Text("The answer was an error", "回答出错"),
    DropReason.INCOMPLETE: Text("Cut off or stopped before its end", "中断或未完成"),
    DropReason.TRUNCATED_ANSWER: Text("Cut at the length limit", "因长度上限被截断"),
    DropReason.REFUSAL: Text("The answer was a refusal", "拒绝回答"),
    DropReason.EMPTY_SIDE: Text("An empty answer", "回答为空"),
    DropReason.IDENTICAL: Text("The better and the worse answer were the same", "好坏两个回答完全相同"),
    DropReason.IDENTICAL_AFTER_NORMALISE: Text("They differed only in spaces or widths", "仅空格或全半角不同"),
    DropReason.TRIVIAL_EDIT: Text("Only punctuation was changed", "只改了标点"),
    DropReason.EQUALS_PROMPT: Text("The answer repeated the question", "回答只是重复问题"),
    DropReason.PROMPT_MISMATCH: Text("The two answers belonged to different questions", "两个回答对应的问题不同"),
    DropReason.PLACEHOLDER: Text("A template's blank was left in the text", "文本中残留模板占位"),
    DropReason.BAD_MESSAGES: Text("The conversation was malformed", "对话格式错误"),
    DropReason.BAD_ENCODING: Text("The text was damaged beyond repair", "文本编码损坏"),
    DropReason.SCRUB_FAILED: Text("Personal data could not be removed with certainty", "无法确保去除个人信息"),
    DropReason.TOO_LONG: Text("Too long to learn from", "过长，无法学习"),
    DropReason.EXACT_DUPLICATE: Text("A repetition of another one", "与其他内容重复"),
    DropReason.NEAR_DUPLICATE: Text("Nearly the same as another one", "与其他内容几乎相同"),
    DropReason.GOLDEN: Text("Asks what a fixed test question asks", "与固定测试题相同或相近"),
    DropReason.ONE_CLASS: Text("Only praise or only blame, so nothing to compare", "只有好评或只有差评，无法比较"),
    DropReason.USER_CAP: Text("One user would have weighed too much", "避免单个用户占比过大"),
    DropReason.TOO_FEW_USERS: Text("Too few users said the same", "提出相同意见的用户太少"),
    DropReason.HELD_OUT_NEIGHBOUR: Text("Too close to a test question", "与测试题过于接近"),
    DropReason.QUARANTINED: Text("Looks manipulated; held until somebody has checked it", "疑似恶意反馈，待人工确认"),
    DropReason.POISON: Text("Manipulated, as somebody has confirmed", "经人工确认的恶意反馈"),
}

PII: dict[str, Text] = {
    "PERSON": Text("names", "个姓名"),
    "LOCATION": Text("places", "个地点"),
    "ADDRESS": Text("addresses", "个地址"),
    "EMAIL": Text("mail addresses", "个邮箱"),
    "PHONE": Text("phone numbers", "个电话号码"),
    "CARD": Text("card numbers", "个银行卡号"),
    "IBAN": Text("bank accounts", "个银行账户"),
    "ID_CARD": Text("identity cards", "个身份证号"),
    "SSN": Text("social security numbers", "个社会保障号"),
    "DRIVER_LICENSE": Text("driving licences", "个驾驶证号"),
    "PASSPORT": Text("passports", "个护照号"),
    "COMPANY_ID": Text("company numbers", "个统一社会信用代码"),
    "PLATE": Text("number plates", "个车牌号"),
    "WECHAT": Text("WeChat ids", "个微信号"),
    "QQ": Text("QQ numbers", "个 QQ 号"),
    "IP": Text("network addresses", "个网络地址"),
    "MAC": Text("device addresses", "个设备地址"),
    "SECRET": Text("passwords and keys", "个密码或密钥"),
}
