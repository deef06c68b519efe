"""The words about a judge."""

from evals.report.texts.text import Text

JUDGE: dict[str, Text] = {
    "judge_title": Text("What the judge said", "评审模型的意见"),
    "judge_said": Text(
        "Another model compared {judged:pair/pairs} of answers, each in both orders: the new one was better in {wins}, "
        "worse in {losses}, alike in {ties}, and in {unclear} its verdict could not be relied on.",
        "另一个模型对 {judged} 组回答按两种顺序各评一次：新版本更好 {wins} 组，更差 {losses} 组，相当 {ties} 组，"
        "{unclear} 组的结论不可靠。",
    ),
    "judge_unread": Text("{n:pair/pairs} got no verdict.", "{n} 组没有得到结论。"),
    "judge_agreement": Text(
        "Measured on {pairs:pair/pairs} that {users:user/users} judged, it agrees with people in {agreement} of cases "
        "(between {low} and {high}); a coin would in 50%.",
        "用 {users} 位用户评判过的 {pairs} 组回答检验，它与人的一致率为 {agreement}（{low} 至 {high} 之间）；"
        "抛硬币为 50%。",
    ),
    "judge_agreement_none": Text(
        "Whether it agrees with people could not be measured.", "无法检验它与人的意见是否一致。"
    ),
    "judge_doubted": Text("So its verdict does not count: {reasons}.", "因此它的意见不计入结论：{reasons}。"),
    "doubt_unavailable": Text("it could not be reached", "无法连接"),
    "doubt_budget_used_up": Text("its budget was used up", "预算用尽"),
    "doubt_unreadable": Text("too many of its verdicts could not be read", "无法读取的结论过多"),
    "doubt_few_human_pairs": Text("too few answers of users to check it by", "可供检验的用户评判太少"),
    "doubt_low_agreement": Text("it is not shown to agree with people often enough", "不能证明它与人足够一致"),
    "l_judge": Text("judge", "评审模型"),
    "judge_tokens": Text("{judge}, {tokens} tokens", "{judge}，{tokens} 个词元"),
    "judge_paid": Text(
        "{judge}, {tokens} tokens, {cost} of {budget}", "{judge}，{tokens} 个词元，{cost}，预算 {budget}"
    ),
}
