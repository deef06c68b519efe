"""The words about answers side by side."""

from evals.report.texts.text import Text

ANSWERS: dict[str, Text] = {
    "changed_title": Text("Before and after, side by side", "前后并排对比"),
    "changed_lead": Text(
        "Up to three questions on which the new version scored most above, three on which it scored most below and "
        "three drawn by chance, those with the greatest difference first. Which answer is the new one is hidden until "
        "you look, so that you can judge for yourself. What differs is marked; personal data was replaced by "
        "placeholders.",
        "新版本得分高出最多的、低得最多的、随机抽取的问题各至多三个，差异大的在前。哪个是新版本的回答先隐藏，"
        "便于您自行判断。不同之处已标出；个人信息已替换为占位符。",
    ),
    "samples_none": Text("There are no answers to compare.", "没有可以对比的回答。"),
    "samples_erased": Text(
        "Answers side by side are no longer shown: somebody whose questions were among them had their data erased.",
        "并排对比的回答已不再显示：其中有用户要求删除了其数据。",
    ),
    "sample_n": Text("{n} of {of}", "第 {n} 个，共 {of} 个"),
    "reveal": Text("Which is the new one?", "哪个是新版本？"),
    "key": Text("Key", "答案"),
    "key_entry": Text("{n}: {name} is new", "{n}：{name} 为新版本"),
    "scored_better": Text("The new answer scored better.", "新版本的回答得分更高。"),
    "scored_worse": Text("The new answer scored worse.", "新版本的回答得分更低。"),
    "scored_same": Text("Both scored the same.", "两个回答得分相同。"),
    "answers_equal": Text("Both answers are the same, word for word.", "两个回答逐字相同。"),
    "answers_apart": Text(
        "The answers have hardly a word in common, so nothing is marked.", "两个回答几乎没有相同之处，因此不作标记。"
    ),
    "more_characters": Text("(… {n:more character/more characters}, not shown)", "（……另有 {n} 个字符未显示）"),
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
}
