"""The words of a rollout's page."""

from evals.report.texts.text import Text

ROLLOUT: dict[str, Text] = {
    "rollout_title": Text("Rollout of version {version}", "版本 {version} 的上线过程"),
    "eyebrow_rollout": Text("Rollout", "灰度上线"),
    "rollout_canary": Text(
        "Version {version} is being tried with {share} of the users", "版本 {version} 正面向 {share} 的用户试用"
    ),
    "rollout_paused": Text("The rollout of version {version} is paused", "版本 {version} 的上线已暂停"),
    "rollout_done": Text("Version {version} is in service for everyone", "版本 {version} 已面向全部用户"),
    "rollout_rolled_back": Text("Version {version} was taken back", "版本 {version} 已撤回"),
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
    "rollout_shadow": Text(
        "Version {version} is being tried unseen: no user gets its answers",
        "版本 {version} 正在后台试用，用户看不到其回答",
    ),
    "rollout_lead_shadow": Text("All users are served by {previous}.", "全部用户使用{previous}。"),
    "rollout_few_copies": Text(
        "Copies of questions of {needed:user/users} are needed; there are those of {users} so far.",
        "需要 {needed} 位用户问题的副本，目前 {users} 位。",
    ),
    "rollout_ab": Text(
        "Version {version} is compared in an A/B test with {share} of the users",
        "版本 {version} 正在 A/B 测试中，面向 {share} 的用户",
    ),
    "rollout_lead_ab": Text(
        "The others are served by {previous}. The split stays as it is until the test is over, unless answers fail.",
        "其余用户使用{previous}。除非出现故障，分组在测试结束前保持不变。",
    ),
    "rollout_ended": Text("The A/B test of version {version} is over", "版本 {version} 的 A/B 测试已结束"),
    "rollout_lead_ended": Text(
        "All users are served by {previous} again. Which version serves them from now on is for a person to decide.",
        "全部用户已恢复使用{previous}；此后使用哪个版本由人工决定。",
    ),
    "ab_better": Text(
        "{metric}: better with the new version, and not by chance.", "{metric}：新版本更好，且不是偶然。"
    ),
    "ab_worse": Text("{metric}: worse with the new version, and not by chance.", "{metric}：新版本更差，且不是偶然。"),
    "ab_open": Text(
        "Nothing that users did differs by more than chance explains.", "用户的各项表现均无超出偶然的差异。"
    ),
    "rollout_why_done": Text("Every step went well.", "每一步都正常。"),
    "rollout_why_worse": Text(
        "{metric}: worse than allowed, and not by chance.", "{metric}：超出允许范围，且不是偶然。"
    ),
    "rollout_why_waiting": Text(
        "Enough users were heard; the step goes on until its time is over.", "用户数已够，本步骤仍在规定时长内。"
    ),
    "rollout_few_candidate": Text(
        "The step needs {needed:user/users} on the new version; {users} came so far.",
        "本步骤需要 {needed} 位用户使用新版本，目前 {users} 位。",
    ),
    "rollout_few_control": Text(
        "It needs {needed:user/users} in the comparison group; {users} came so far.",
        "对照组需要 {needed} 位用户，目前 {users} 位。",
    ),
    "rollout_started": Text("Begun on {at}", "开始于 {at}"),
    "rollout_recorded": Text("Recorded reason", "系统记录的原因"),
    "steps_title": Text("Step by step", "逐步扩大"),
    "steps_lead": Text(
        "At each step a group of the same size, served by the old version at the same time, is the comparison. The dot "
        "is the measured difference; a version is stopped when its whole line lies in the shade.",
        "每一步都与同时段、同等规模、使用旧版本的用户组比较。圆点是测得的差距；整条线段落入阴影区时即停止。",
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
    "step_ab": Text("A/B test: {share} of users", "A/B 测试：{share} 的用户"),
    "step_shadow": Text("Shadow", "影子测试"),
    "step_users_shadow": Text(
        "The new version answered copies of questions of {candidate:user/users}; nobody saw its answers",
        "新版本回答了 {candidate} 位用户问题的副本，用户看不到这些回答",
    ),
    "step_passed": Text("all fine", "全部正常"),
    "step_failed": Text("stopped here", "在此停止"),
    "step_open": Text("still collecting", "仍在收集"),
    "step_no_checks": Text("No comparison yet.", "尚无对比。"),
    "limit_told": Text("{rate} (limit {limit})", "{rate}（上限 {limit}）"),
    "rollout_sure": Text(
        "These lines are wider than usual on purpose: they stay true however often someone looks, so looking every few "
        "seconds stops no good version by chance.",
        "这些区间有意放宽：无论查看多少次都成立，因此频繁查看不会因偶然而误停好的版本。",
    ),
}
