"""The words of a decision's page."""

from evals.report.texts.text import Text

DECISION: dict[str, Text] = {
    # Verdict
    "gate_title": Text("Decision on {candidate}", "{candidate} 的评审结论"),
    "eyebrow_gate": Text("Decision of the night", "夜间评审"),
    "promote_better": Text("{candidate} is better and may go into service", "{candidate} 更好，可以上线"),
    "promote_not_worse": Text("{candidate} is no worse and may go into service", "{candidate} 不逊色，可以上线"),
    "reject_primary": Text("{candidate} stays out: it is not better", "{candidate} 不上线：没有变好"),
    "reject_primary_not_worse": Text("{candidate} stays out: it is worse", "{candidate} 不上线：变差了"),
    "reject_guardrail": Text("{candidate} stays out: it does harm", "{candidate} 不上线：带来了损害"),
    "inconclusive": Text("{candidate} stays out: nothing is proven yet", "{candidate} 暂不上线：证据还不够"),
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
    "why_missing": Text(
        "{missing:question/questions} of {asked} got no answer: what is left may not stand for all.",
        "{asked} 个问题中有 {missing} 个没有得到回答，剩下的不足以代表全部。",
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
    "praise_and_blame": Text("{praise} good · {blame} bad", "好评 {praise} · 差评 {blame}"),
    "reasons_title": Text("Reasons that several users gave", "多位用户提到的原因"),
    "reasons_lead": Text(
        "In their own words; how many users said the same. What fewer than three said is not shown.",
        "用户原话及提到的人数；不足三人提到的不显示。",
    ),
    "reasons_erased": Text(
        "Reasons are no longer shown: somebody who gave one had their data erased.",
        "原因已不再显示：提到原因的用户中有人要求删除了其数据。",
    ),
    "wishes_title": Text("For example", "例如"),
    "wishes_lead": Text(
        "Answers that users rewrote or turned down, and what they wanted. What differs is marked.",
        "被用户改写或否定的回答，以及他们想要的回答；不同之处已标出。",
    ),
    "was_answered": Text("The answer", "原回答"),
    "wanted": Text("What the user wanted", "用户想要的回答"),
    "wishes_erased": Text(
        "Examples are no longer shown: somebody whose questions were among them had their data erased.",
        "示例已不再显示：其中有用户要求删除了其数据。",
    ),
    "said_none": Text("There was no feedback in this time.", "这段时间没有反馈。"),
    # What was used
    "used_title": Text("What the adapter learned from", "模型从哪些内容中学习"),
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
    "kept": Text("Used", "采用"),
    "total": Text("Together", "合计"),
    "total_right": Text("as many as there were", "与总数一致"),
    "total_wrong": Text("but there were {interactions}", "但总数为 {interactions}"),
    "rows_none": Text("Nothing was left to learn from.", "没有可用于训练的样本。"),
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
    # Checks
    "checks_title": Text("Each check", "逐项检查"),
    "checks_lead": Text(
        "The dot is the measured difference, the line where the true one lies with {confidence} certainty. The upright "
        "stroke is the threshold: the line must lie right of it, off the shade. A single check that falls short "
        "keeps a version out.",
        "圆点是测得的差距，线段是真实差距以 {confidence} 的把握所在的范围。竖线为界限：线段须在其右侧、不进入阴影区。"
        "任何一项不达标，新版本就不能上线。",
    ),
    "checks_judged": Text("What decides", "决定结论的检查"),
    "checks_informs": Text("For information", "仅供参考"),
    "asked_nothing": Text("decides nothing", "不影响结论"),
    "asked_better": Text("must be better", "须变好"),
    "asked_better_by": Text("must be better by more than {margin}", "须变好 {margin}以上"),
    "asked_not_worse": Text("must not be worse", "不得变差"),
    "asked_not_worse_by": Text("may be worse by {margin} at most", "至多可变差 {margin}"),
    "before_after": Text("{before} before, {after} now", "之前 {before}，现在 {after}"),
    "length_note": Text(
        "×2 means twice or half as long as the answers that users accepted.", "×2 表示比用户认可的回答长一倍或短一半。"
    ),
    # Limits
    "limits_title": Text("What could not be shown", "未能证明的内容"),
    "unseen_nothing": Text("Every check that decides could be answered.", "每一项起决定作用的检查都有了结论。"),
    "unseen_no_data": Text("There was nothing to score.", "没有可评分的内容。"),
    "unseen_open": Text(
        "The truth may be as much as {bound} worse. A difference of {effect} or more would have shown.",
        "实际上最多可能变差 {bound}。差距达到 {effect}以上时才能看出。",
    ),
    "unseen_gain": Text(
        "It is not worse, but not shown to be better by enough. A difference of {effect} or more would have shown.",
        "没有变差，但也不能证明改进足够大。差距达到 {effect}以上时才能看出。",
    ),
    "unseen_no_case": Text(
        "Both did the same throughout. A change that touches fewer than {effect} of users may have stayed unseen.",
        "两个版本完全一样。影响不到 {effect} 用户的变化可能未被发现。",
    ),
    "unseen_none_worse": Text(
        "Not one answer got worse, but so few answers alone would allow up to {bound}.",
        "没有任何一条回答变差；但仅凭这些回答，最多可能变差 {bound}。",
    ),
    "sure_effect": Text(
        "{metric}: with this many, a true difference of {effect} or more shows in nineteen nights of twenty; smaller "
        "ones may stay unseen. To go into service, a version must pass every other check as well.",
        "{metric}：以这样的数量，真实差距达到 {effect}以上时，二十晚中有十九晚能够看出；更小的差距可能看不出来。"
        "要上线，还须通过其他每一项检查。",
    ),
    "recent_metric": Text("{metric} (newest days)", "{metric}（最近几天）"),
    "sure_users": Text(
        "We count users, not clicks: {users:independent voice/independent voices} stand behind the verdict. Many "
        "answers of one user weigh as one voice.",
        "我们按用户计算，而不是按点击：结论基于 {users} 个独立来源。同一用户的多条回答只算一个来源。",
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
    "missing": Text(
        "No answer by one side or both to {missing:question/questions} of {asked}, which count for neither: {reasons}.",
        "{asked} 个问题中有 {missing} 个至少有一方没有回答，对双方都不计分：{reasons}。",
    ),
    "missing_part": Text("{reason} ({side}): {items}", "{reason}（{side}）{items} 个"),
    "missing_baseline": Text("in service alone", "仅当前版本"),
    "missing_candidate": Text("new alone", "仅新版本"),
    "missing_both": Text("both", "双方"),
    "missing_unsupported": Text("with an image or another file, not asked", "含图片等文件，未提问"),
    "missing_too_long": Text("too long for the engine", "超出引擎的长度限制"),
    "missing_refused": Text("refused by the engine", "被引擎拒绝"),
    "missing_failed": Text("failed in every try", "多次尝试均失败"),
    # The canary
    "canary_title": Text("The trial with users so far", "用户试用情况"),
    "canary_ahead": Text(
        "When this page was made the trial had not begun. It gets a page of its own, which stands in the overview.",
        "生成本页时试用尚未开始。试用有单独的页面，可在总览中找到。",
    ),
    "canary_never": Text("There is no trial: the version stays out.", "没有试用：该版本不上线。"),
    # Lineage
    "lineage": Text("Where it comes from, and all numbers (for engineers)", "来源与全部数字（技术细节）"),
    "l_snapshot": Text("snapshot", "数据快照"),
    "l_window": Text("its window", "数据时间段"),
    "l_adapter": Text("adapter (sha256)", "适配器（sha256）"),
    "l_parent": Text("goes on from", "训练起点"),
    "l_base": Text("base model", "基础模型"),
    "l_recipe": Text("recipe", "训练配方"),
    "l_training": Text("training", "训练编号"),
    "l_engine": Text("engines that answered", "作答的推理引擎"),
    "l_sides": Text("compared", "对比双方"),
    "l_decision": Text("decision", "结论编号"),
    "l_seed": Text("seed", "随机种子"),
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
    "d_method": Text(
        "Paired by question; each user counts once, with the mean of their answers. {confidence} intervals: the wider "
        "of Student's t and the BCa bootstrap ({samples} samples), bound by bound. Checks called failed are so among "
        "all of them (Holm). Temperature 0. Differences are new minus in service.",
        "按问题配对；每位用户取其回答的平均值，各计一次。置信区间 {confidence}：逐端取 t 区间与 BCa 自助法"
        "（抽样 {samples} 次）中较宽者。判为未通过的指标已按 Holm 方法校正多重比较。温度 0。差距为新版本减当前版本。",
    ),
}
