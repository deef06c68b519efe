"""Error messages that some layer below put in an answer's place: nobody said them, whatever they were voted."""

import re

_LONGEST = 300
"""Characters; a longer answer that begins with one of these explains an error and is none."""

_BEGINS = re.compile(
    r"\W{0,4}(?:NETWORK ERROR DUE TO HIGH TRAFFIC|API REQUEST ERROR|(?:\[|FATAL )ERROR\b|Error(?: code| occurred|:\s)"
    r"|(?:HTTP(?:/[\d.]+)?|Error|Status(?: code)?)[ :]+[45]\d\d"
    r"(?:\s*[.:(-]|$| (?:Internal|Bad|Service|Gateway|Too Many|Unauth))"
    r"|Internal Server Error|50[234] (?:Bad Gateway|Service|Gateway)|Service (?:Temporarily )?Unavailable"
    r"|upstream (?:connect error|request timeout)|Request timed? ?out|Rate limit (?:exceeded|reached)"
    r"|(?:connection|gateway|read) (?:timed? ?out|refused|reset|aborted|closed|error)\s*(?:[.:!(]|by peer|$)"
    r"|(?:[a-z_]+\.)+\w*(?:Error|Exception)(?:[:(]|$)"
    r"|\w*(?:Connection|Timeout|RateLimit|API|HTTP|SSL|Proxy)\w*Error[:(]"
    r"|error['\"]\s*:|<(?:!doctype )?html\b.{0,200}?<title>\s*[45]\d\d\b"
    r"|CUDA (?:error|out of memory)|Traceback \(most recent call last\)"
    r"|YOUR INPUT VIOLATES OUR CONTENT MODERATION|THIS SESSION HAS BEEN INACTIVE"
    r"|I apologi[sz]e for the inconvenience, but (?:an error|there was an error))",
    re.IGNORECASE | re.DOTALL,
)
"""What no answer to a person begins with."""

_SORRY = (
    r"(?:(?:sorry|oops|uh[- ]oh|apologies|i apologi[sz]e)[,.!]?(?: but)? "
    r"|(?:非常|很)?(?:抱歉|对不起|不好意思)[，,！!。]?)?"
)
_TRY_AGAIN = (
    r"[\s,，.。!！;；:：~～]*+"
    r"(?:(?:(?:please )?(?:try|retry|refresh|come back)\b|请?您?(?:稍[后候等]|过一会|重新|重试|再试|刷新)).{0,60})?"
)
_WHOLE = re.compile(
    rf"{_SORRY}(?:something went wrong|(?:i (?:have )?encountered |there was )?an? (?:\w+ )?error"
    rf"(?: has)?(?: occurred)?)(?: (?:while|when|during) \w+ing (?:your|the|this) \w+| with your request)?{_TRY_AGAIN}"
    rf"|{_SORRY}(?:当前|目前|该|本)?(?:服务器?|系统|网络|请求|接口|连接|访问|模型|人数)"
    r"(?:连接|请求|访问|人数|响应|目前|暂时)*"
    rf"(?:繁忙|异常|错误|出错|超时|失败|不可用|暂不可用|开小差了?|过多|过于频繁|中断|太忙)了?{_TRY_AGAIN}"
    rf"|{_SORRY}(?:出错了|发生(?:了?未知|了)?错误){_TRY_AGAIN}"
    r"|undefined|\[object Object\]",
    re.IGNORECASE,
)
"""What an answer may begin with ("网络异常时请重启路由器"), and what is no answer when nothing else is said."""


def is_error(text: str) -> bool:
    """Whether an answer is an error message (English or Chinese), and not one that explains an error."""
    said = text.strip()
    return len(said) <= _LONGEST and bool(_BEGINS.match(said) or _WHOLE.fullmatch(said))
