"""The words of the page of a night in which nothing was trained."""

from evals.report.texts.text import Text

NIGHT: dict[str, Text] = {
    "night_title": Text("Night of {at}", "{at}夜间运行"),
    "eyebrow_night": Text("Night", "夜间运行"),
    "night_lead": Text(
        "On {at} there was too little to learn from, so no new version was made. What is in service stays.",
        "{at} 可供学习的内容太少，因此没有产生新版本；在用版本保持不变。",
    ),
    "night_used": Text("What could have been learned from", "可供学习的内容"),
    "night_next": Text(
        "The next night looks at the last {days} days again. More thumbs, ratings and corrections make it enough; "
        "below stands what there was, and why the rest was left out.",
        "下一晚会再次查看最近 {days} 天的反馈。更多的点赞、评分和改写就能凑足；"
        "下面列出已有的反馈，以及其余内容被排除的原因。",
    ),
}
