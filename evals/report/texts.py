"""Every word of the reports, English and Chinese side by side.

`{n:answer/answers}` in an English text writes the number with the right form of the noun.
"""

from typing import NamedTuple

from evals.metrics import METRICS, Metric
from pipeline.records import DropReason, FeedbackKind


class Text(NamedTuple):
    """One text in both languages."""

    en: str
    zh: str


TEXTS: dict[str, Text] = {
    # Verdict
    "gate_title": Text("Decision on {candidate}", "{candidate} 的评审结论"),
    "eyebrow_gate": Text("Decision of the night", "夜间评审"),
    "promote_better": Text("{candidate} is better and may go into service", "{candidate} 更好，可以上线"),
    "promote_not_worse": Text("{candidate} is no worse and may go into service", "{candidate} 不逊色，可以上线"),
    "reject_primary": Text("{candidate} stays out: it is not better", "{candidate} 不上线：没有变好"),
    "reject_primary_not_worse": Text("{candidate} stays out: it is worse", "{candidate} 不上线：变差了"),
    "reject_guardrail": Text("{candidate} stays out: it does harm", "{candidate} 不上线：带来了损害"),
    "inconclusive": Text("{candidate} stays out: nothing is proven yet", "{candidate} 暂不上线：证据还不够"),
    "badge_promote": Text("May go into service", "可以上线"),
    "badge_reject": Text("Stays out", "不上线"),
    "badge_inconclusive": Text("Not proven", "证据不足"),
    "base_model": Text("the base model", "基础模型"),
    "version_n": Text("version {version}", "版本 {version}"),
    "in_service": Text("In service", "当前版本"),
    "candidate": Text("New", "新版本"),
    "lead_asked": Text(
        "Both answered the same {items:question/questions}, and none of them was used for training: {sources}.",
        "两个版本回答了同样的 {items} 个问题，这些问题都没有用于训练：{sources}。",
    ),
    "lead_held_out": Text("{items} from {users:user/users} set aside", "{items} 个来自预留的 {users} 位用户"),
    "lead_held_out_session": Text(
        "{items} from {users:conversation/conversations} set aside", "{items} 个来自预留的 {users} 段对话"
    ),
    "lead_golden": Text("{items} from your own test questions", "{items} 个来自您的标准测试题"),
    "nothing_asked": Text("There was no question to ask both of them.", "没有可供两个版本回答的问题。"),
    "range": Text(
        "We are {confidence} sure that the true difference lies between {low} and {high}.",
        "我们有 {confidence} 的把握认为，真实差距在 {low} 到 {high}之间。",
    ),
    "no_range": Text("One user alone cannot show how far others differ.", "只有一位用户，无法推断其他用户的情况。"),
    "no_primary": Text("No answer could be scored, so nothing can be said.", "没有可以评分的回答，因此无法得出结论。"),
    "why": Text("Why", "原因"),
    "why_promote_better": Text(
        "The improvement is larger than chance explains, and nothing we watch for is worse than you allow.",
        "改进幅度超出了偶然波动，并且各项风险指标都没有超出允许的范围。",
    ),
    "why_promote_not_worse": Text(
        "It is not worse beyond what you allow, and nothing else that we watch for is either.",
        "没有变差到超出允许的范围，其他风险指标也一样。",
    ),
    "why_primary_fails": Text(
        "{metric}: the data rule out an improvement as large as you ask for.", "{metric}：数据已排除所要求的改进。"
    ),
    "why_primary_fails_not_worse": Text(
        "{metric}: worse than you allow, and not by chance.", "{metric}：变差的程度超出允许范围，且不是偶然。"
    ),
    "why_guardrail_fails": Text(
        "{metric}: worse than you allow, and not by chance.", "{metric}：变差的程度超出允许范围，且不是偶然。"
    ),
    "why_primary_open": Text(
        "{metric}: a difference of this size may be chance. With this many users we could "
        "only be sure of {effect} or more.",
        "{metric}：这样的差距可能出于偶然。以目前的用户数，只有差距达到 {effect}以上才能确认。",
    ),
    "why_guardrail_open": Text(
        "{metric}: it may be worse than you allow; the answers we have cannot rule that out.",
        "{metric}：可能比允许的更差，现有回答还不能排除这一点。",
    ),
    "why_no_data": Text("{metric}: there was nothing to score.", "{metric}：没有可评分的内容。"),
    "why_few_users": Text(
        "{metric}: only {users:user was/users were} heard, and {needed} are needed before anything is decided.",
        "{metric}：只有 {users} 位用户，至少需要 {needed} 位才能下结论。",
    ),
    "why_one_user": Text("{metric}: only one user was heard.", "{metric}：只有一位用户。"),
    "next": Text("What happens now", "接下来"),
    "next_promote_auto": Text(
        "It now goes to {share} of the users and wider step by step. The version in service comes back at once if "
        "anything gets worse.",
        "新版本先面向 {share} 的用户，再逐步扩大；一旦变差，立即恢复当前版本。",
    ),
    "next_promote_manual": Text(
        "It waits for your engineer: the alias “promote” on version {version} in MLflow starts it with {share} of the "
        "users.",
        "等待工程师确认：在 MLflow 中给版本 {version} 设置别名 “promote”，即先面向 {share} 的用户开始。",
    ),
    "next_stay": Text(
        "Nothing changes for your users: {baseline} stays in service. The next night tries again with newer feedback.",
        "用户不受影响：继续使用{baseline}。下一晚将用新的反馈再次尝试。",
    ),
    "next_compared": Text(
        "This was a comparison by hand. It changes nothing by itself.", "这是一次手动比较，本身不会带来任何改变。"
    ),
    "outcome_title": Text("Answer by answer", "逐条对比"),
    "better": Text("better", "更好"),
    "same": Text("the same", "相同"),
    "worse": Text("worse", "更差"),
    # What users said
    "said_title": Text("What users said", "用户反馈"),
    "said_window": Text(
        "From {start} to {end}. What was used comes from {users:user/users}.",
        "{start} 至 {end}。被采用的内容来自 {users} 位用户。",
    ),
    "said_none": Text("There was no feedback in this time.", "这段时间没有反馈。"),
    # What was used
    "used_title": Text("What was used, and what was left out", "哪些用于训练，哪些被排除"),
    "used_sum": Text(
        "{interactions:answer/answers} = {sources} used + {dropped} left out",
        "{interactions} 条回答 = {sources} 条采用 + {dropped} 条排除",
    ),
    "used_sum_wrong": Text(
        "These numbers do not add up: {interactions} answers, but {sources} used and {dropped} left out. Please tell "
        "your engineer.",
        "数字对不上：共 {interactions} 条回答，但采用 {sources} 条、排除 {dropped} 条。请告知工程师。",
    ),
    "used": Text("used", "采用"),
    "left_out": Text("left out", "排除"),
    "left_out_why": Text("Why answers were left out", "排除的原因"),
    "rows_taught": Text(
        "They gave {n:training example/training examples}: {detail}.", "由此得到 {n} 条训练样本：{detail}。"
    ),
    "rows_sft": Text("{n:good answer/good answers}", "{n} 条好的回答"),
    "rows_preference": Text("{n:pair of better and worse/pairs of better and worse}", "{n} 组好坏对比"),
    "rows_unpaired": Text("{n:single vote/single votes}", "{n} 条单独评价"),
    "rows_held_out": Text(
        "{n:more example/more examples} of other users were set aside for the test.",
        "另有 {n} 条其他用户的样本留作测试。",
    ),
    "rows_recent": Text(
        "{n:example/examples} of the newest days were kept apart as a second test.",
        "最近几天的 {n} 条样本另作第二组测试。",
    ),
    "pii_removed": Text(
        "Personal data replaced before anything was learned: {detail}.", "训练前已替换的个人信息：{detail}。"
    ),
    "pii_none": Text("No personal data was found in them.", "其中没有发现个人信息。"),
    # Side by side
    "changed_title": Text("What changed, side by side", "前后对比"),
    "changed_lead": Text(
        "The same question to both. Personal data was replaced by placeholders.",
        "同一个问题，两个版本的回答。个人信息已替换为占位符。",
    ),
    "most_improved": Text("Most improved", "改进最大"),
    "most_worsened": Text("Most worsened", "退步最大"),
    "random": Text("Picked at random", "随机抽取"),
    "none_improved": Text("No answer scored better.", "没有得分更高的回答。"),
    "none_worsened": Text("No answer scored worse.", "没有得分更低的回答。"),
    "examples_erased": Text(
        "Answers side by side are no longer shown: somebody whose questions were among them had their data erased.",
        "并排对比的回答已不再显示：其中有用户要求删除了其数据。",
    ),
    "none_random": Text("No further answers.", "没有其他回答。"),
    "question": Text("Question", "问题"),
    "accepted": Text("What the user accepted or wrote", "用户认可或修改后的回答"),
    "whole_conversation": Text("The conversation before it ({n:message/messages})", "此前的对话（{n} 条消息）"),
    "empty_answer": Text("(empty answer)", "（空白回答）"),
    "not_text": Text("(not text: {kind})", "（非文本：{kind}）"),
    "role_system": Text("instructions", "系统指令"),
    "role_user": Text("user", "用户"),
    "role_assistant": Text("assistant", "助手"),
    "role_tool": Text("tool", "工具"),
    "missed": Text("Rule missed: {rule}", "未满足规则：{rule}"),
    "rule_contains": Text("holds “{text}”", "包含“{text}”"),
    "rule_not_contains": Text("is free of “{text}”", "不含“{text}”"),
    "rule_starts_with": Text("opens with “{text}”", "以“{text}”开头"),
    "rule_ends_with": Text("closes with “{text}”", "以“{text}”结尾"),
    "rule_regex": Text("matches {pattern}", "符合 {pattern}"),
    "rule_max_chars": Text("at most {limit:character/characters}", "不超过 {limit} 个字符"),
    "rule_min_chars": Text("at least {limit:character/characters}", "不少于 {limit} 个字符"),
    "rule_must_refuse": Text("declines the request", "拒绝该请求"),
    "rule_must_not_refuse": Text("does not decline the request", "不拒绝该请求"),
    "rule_no_personal_data": Text("is free of personal data", "不含个人信息"),
    "rule_max_words": Text("at most {limit:word/words}", "不超过 {limit} 个词"),
    "rule_language_en": Text("written in English", "使用英文"),
    "rule_language_zh": Text("written in Chinese", "使用中文"),
    "rule_json_schema": Text("has the agreed JSON form", "符合约定的 JSON 格式"),
    # Guardrails
    "watched_title": Text("What must not get worse", "不能变差的指标"),
    "watched_lead": Text("One of these alone keeps a version out.", "其中任何一项超标，新版本就不能上线。"),
    "allowed": Text("Allowed to worsen by", "允许变差"),
    "allowed_nothing": Text("nothing", "不允许"),
    "result": Text("Result", "结果"),
    "passed": Text("fine", "正常"),
    "failed": Text("worse than allowed", "超出允许范围"),
    "open": Text("not certain", "不能确定"),
    "no_data": Text("no data", "没有数据"),
    "no_case": Text(
        "No case on either side. A change touching {effect} of users or more would probably have shown.",
        "两个版本都没有出现。若有 {effect} 以上的用户受影响，多半会被发现。",
    ),
    "none_worse": Text("Not one answer got worse here.", "没有任何一条回答在这方面变差。"),
    "length_note": Text(
        "×2 means twice or half as long as the answers that users accepted.", "×2 表示比用户认可的回答长一倍或短一半。"
    ),
    "could_be": Text("May be worse by up to {bound}.", "最多可能变差 {bound}。"),
    # Certainty
    "sure_title": Text("How sure we are", "结论有多可靠"),
    "sure_lead": Text(
        "The dot is the measured difference. The line is where the true one lies with {confidence} certainty: the "
        "shorter, the surer.",
        "圆点是测得的差距；线段是真实差距以 {confidence} 的把握所在的范围：越短越确定。",
    ),
    "plot_quality": Text("Quality", "质量"),
    "plot_safety": Text("What must not get worse", "不能变差的指标"),
    "axis_worse": Text("← worse", "← 变差"),
    "axis_better": Text("better →", "变好 →"),
    "axis_zero": Text("no difference", "无差别"),
    "axis_margin": Text("shaded: worse than allowed", "阴影：超出允许范围"),
    "axis_goal": Text("shaded: not enough to pass", "阴影：未达到要求"),
    "recent_metric": Text("{metric} (newest days)", "{metric}（最近几天）"),
    "sure_users": Text(
        "We count users, not clicks: {users:independent voice/independent voices} stand behind the verdict. Many "
        "answers of one user weigh as one voice.",
        "我们按用户计算，而不是按点击：结论基于 {users} 个独立来源。同一用户的多条回答只算一个来源。",
    ),
    "sure_effect": Text(
        "With this many, a true difference of {effect} or more is found in four nights of five. Smaller ones may stay "
        "unseen.",
        "以这样的数量，真实差距达到 {effect}以上时，五晚中有四晚能够发现；更小的差距可能看不出来。",
    ),
    "sure_luck": Text(
        "If a version of every night of a year were truly no better, luck would still let about {nights} of 365 "
        "through.",
        "假如一年中每晚的版本其实都没有变好，全年 365 晚里约有 {nights} 晚会因偶然而通过。",
    ),
    "sure_session": Text(
        "There are few users, so whole conversations were set aside instead of users: the same person may stand on "
        "both sides of the test.",
        "用户较少，因此按对话而不是按用户预留测试：同一个人可能同时出现在训练和测试中。",
    ),
    "details": Text("For engineers", "技术细节"),
    "d_metric": Text("metric", "指标"),
    "d_role": Text("role", "作用"),
    "d_difference": Text("difference", "差距"),
    "d_interval": Text("interval", "区间"),
    "d_margin": Text("margin", "界限"),
    "d_items": Text("items / users", "条数 / 用户"),
    "d_smallest": Text("smallest effect", "可检出最小差距"),
    "role_primary": Text("primary", "主要指标"),
    "role_guardrail": Text("guardrail", "风险指标"),
    "role_information": Text("information", "参考"),
    "d_ids": Text(
        "decision {decision} · snapshot {snapshot} · baseline {baseline} · candidate {candidate} · seed {seed}",
        "结论 {decision} · 数据快照 {snapshot} · 基线 {baseline} · 候选 {candidate} · 随机种子 {seed}",
    ),
    "d_method": Text(
        "Paired by question; each user counts once, with the mean of their answers. {confidence} intervals: the wider "
        "of Student's t and the BCa bootstrap ({samples} samples), bound by bound. Checks called failed are so among "
        "all of them (Holm). Temperature 0. Differences are new minus in service.",
        "按问题配对；每位用户取其回答的平均值，各计一次。置信区间 {confidence}：逐端取 t 区间与 BCa 自助法"
        "（抽样 {samples} 次）中较宽者。判为未通过的指标已按 Holm 方法校正多重比较。温度 0。差距为新版本减当前版本。",
    ),
    "generated": Text("Made {at}", "生成于 {at}"),
    # Rollout
    "rollout_title": Text("Rollout of version {version}", "版本 {version} 的上线过程"),
    "eyebrow_rollout": Text("Rollout", "灰度上线"),
    "rollout_canary": Text(
        "Version {version} is being tried with {share} of the users", "版本 {version} 正面向 {share} 的用户试用"
    ),
    "rollout_paused": Text("The rollout of version {version} is paused", "版本 {version} 的上线已暂停"),
    "rollout_done": Text("Version {version} is in service for everyone", "版本 {version} 已面向全部用户"),
    "rollout_rolled_back": Text("Version {version} was taken back", "版本 {version} 已撤回"),
    "badge_canary": Text("Trial running", "试用中"),
    "badge_paused": Text("Paused", "已暂停"),
    "badge_done": Text("In service", "已上线"),
    "badge_rolled_back": Text("Taken back", "已撤回"),
    "rollout_lead_canary": Text(
        "The others are served by {previous}, which comes back for everyone at once if anything gets worse.",
        "其余用户仍使用{previous}；一旦变差，全部用户立即恢复。",
    ),
    "rollout_lead_paused": Text(
        "A person stopped it here; nothing widens until someone lets it go on.", "由人工暂停；在恢复之前不会继续扩大。"
    ),
    "rollout_lead_done": Text(
        "It replaced {previous}, which stays ready: going back takes a second.",
        "它取代了{previous}；后者仍保持就绪，可随时立即恢复。",
    ),
    "rollout_lead_rolled_back": Text("All users are served by {previous} again.", "全部用户已恢复使用{previous}。"),
    "rollout_reason": Text("Reason given by the system", "系统给出的原因"),
    "steps_title": Text("Step by step", "逐步扩大"),
    "steps_lead": Text(
        "At each step a group of the same size, served by the old version at the same time, is the comparison.",
        "每一步都与同时段、同等规模、使用旧版本的用户组比较。",
    ),
    "steps_none": Text("No step was compared.", "没有进行过对比。"),
    "step_share": Text("{share} of users", "{share} 的用户"),
    "step_time": Text("{start} – {end}", "{start} – {end}"),
    "step_running": Text("{start} – now", "{start} – 至今"),
    "step_users": Text(
        "{candidate:user/users} on the new version, {control} in the comparison group",
        "新版本 {candidate} 位用户，对照组 {control} 位",
    ),
    "step_users_alone": Text(
        "{candidate:user/users} on the new version, judged by fixed limits", "新版本 {candidate} 位用户，按固定界限判断"
    ),
    "step_passed": Text("all fine", "全部正常"),
    "step_failed": Text("stopped here", "在此停止"),
    "step_open": Text("still collecting", "仍在收集"),
    "step_no_checks": Text("No comparison yet.", "尚无对比。"),
    "limit_told": Text("{rate} (limit {limit})", "{rate}（上限 {limit}）"),
    "rollout_axis": Text("shaded: worse than allowed", "阴影：超出允许范围"),
    "rollout_sure": Text(
        "These lines are wider than usual on purpose: they stay true however often someone looks, so looking every few "
        "seconds stops no good version by chance.",
        "这些区间有意放宽：无论查看多少次都成立，因此频繁查看不会因偶然而误停好的版本。",
    ),
}

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
    DropReason.GOLDEN: Text("Stands in your own test questions", "属于标准测试题"),
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
