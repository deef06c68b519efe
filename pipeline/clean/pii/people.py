"""Names of persons that patterns can tell: by what stands before or behind them. Most names are left to the models."""

from pipeline.clean.pii.recogniser import FOREIGN_LETTER, HAN, look

_GIVEN = r"(?-i:\p{Lu})[^\W\d_]{1,20}"
_WORD = r"(?-i:\p{Lu})[\p{Latin}'’\-]{1,20}"

_LETTERED = (
    "Vitamin|Plan|Type|Hepatitis|Grade|Class|Section|Part|Option|Unit|Phase|Series|Group|Figure|Appendix|Team|And"
)
"""What a single letter stands behind, as in "Vitamin C Serum"."""
_TWO_CHARACTERS = (
    "欧阳|司马|上官|诸葛|慕容|令狐|皇甫|尉迟|公孙|夏侯|贺兰|单于|端木"
    "|呼延|纳兰|完颜|耶律|西门|司空|司徒|东方|南宫|主父|宇文|长孙|轩辕|澹台|独孤"
)
_ONE_CHARACTER = (
    "赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦尤许何吕施张孔曹严华金魏陶姜戚谢邹喻柏水窦章云苏潘葛奚范彭郎鲁韦昌马苗凤花方俞任袁柳鲍史唐费廉岑薛雷贺倪汤"
    "滕殷罗毕郝邬安常乐于傅皮卞齐康伍余元卜顾孟平黄穆萧尹姚邵湛汪祁毛禹狄米贝明臧计伏戴谈宋茅庞熊纪舒屈项祝董梁杜阮蓝闵席季麻强贾路娄危江童颜郭梅盛"
    "林刁钟梁徐邱骆高夏蔡田樊胡凌霍虞万支柯昝管卢莫房裘缪干解宗丁宣邓郁单杭洪包诸左石崔吉钮龚程邢裴陆荣翁荀羊惠甄曲封储靳松井段富焦巴弓牧隗山谷车侯宓蓬"
    "班仰秋仲伊宫宁仇栾暴甘厉戎祖武符刘景詹束龙叶幸司韶郜黎蓟薄印宿白怀蒲邰鄂索咸籍赖卓蔺屠蒙池乔阴胥苍闻莘党翟谭贡劳逄姬申扶堵冉宰郦雍桑桂濮牛寿边"
    "扈燕冀郏浦尚农温庄晏柴瞿阎慕茹习宦艾鱼容古易慎戈廖庾终暨居衡耿弘匡国文寇广禄阙东殴殳沃利蔚夔隆师巩厍聂晁勾敖融冷訾辛阚简饶曾沙养鞠"
    "丰巢关蒯查荆红游竺权逯盖益桓岳帅缑亢况郈琴晋楚闫法汝鄢涂钦商牟佘佴伯赏墨哈谯笪爱阳佟肖覃苑亓苟庹乜来麦"
)
_ZH_NAME = rf"(?:(?:{_TWO_CHARACTERS})[{HAN}]{{1,2}}?|[{_ONE_CHARACTER}][{HAN}]{{1,2}}?)"
_ZH_CALLED = (
    "我叫|名叫|叫做|自称|姓名|户名|联系人|收件人|收货人|收票人|收款人|汇款人|付款人|借款人|担保人|委托人|受托人|代理人|法定代表人|法人|原告|被告|申请人|投保人"
    "|保险人|受益人|乘机人|入住人|同行人|乘客|旅客|患者|病人|家属|监护人|代办人|负责人|经办人|持卡人|签收人|提交人|司机|导游|律师|护士|运维|英文名|护照名|真名"
)
_ZH_NO_NAME = (
    "单位|关系|方式|方面|方向|高血|高烧|高热|高危|水平|成年|信息|全部|公司|都是|有没|有点|常见|于是"
    "|明天|明白|时间|能否|和我|任何|计划|通过|安全|经常"
)
_ZH_TITLE = "先生|女士|小姐|小朋友|同学"
_ZH_ASKED = "您好|你好|请问|好的|尊敬的|转告|联系|患者|客户|旅客|司机|带|请|和|与|由|给|找|是|的"


def _is_foreign(value: str) -> bool:
    return any(char.isalpha() and not char.isascii() for char in value)


PEOPLE = (
    look(
        "PERSON",
        rf"(?:{_ZH_CALLED})(?:拼音|是|为|叫|写的是|[:\s]){{0,3}}[“\"]?(?!{_ZH_NO_NAME})"
        rf"(?P<value>{_ZH_NAME}|[A-Z][A-Za-z]{{1,15}}(?:[ ][A-Z][A-Za-z]{{1,15}}){{1,2}})"
        rf"(?=[,.;:()。、”\"\s]|\Z|{_ZH_TITLE}|电话|手机|身份证|证件|住址|地址)",
        _ZH_CALLED,
    ),
    look(
        "PERSON",  # the others of a list that begins so
        rf"(?<=(?:{_ZH_CALLED})[:\s]{{0,2}}(?:[{HAN}]{{2,4}}[、,和与及]){{1,6}})(?!{_ZH_NO_NAME})(?P<value>{_ZH_NAME})"
        r"(?=[,;()。、”\"\s]|\Z)",
        _ZH_CALLED,
    ),
    look(
        "PERSON",
        rf"(?:(?<![{HAN}])|(?<={_ZH_ASKED}))(?!{_ZH_NO_NAME}|.{{1,2}}(?:{_ZH_TITLE}))(?P<value>{_ZH_NAME})(?={_ZH_TITLE})",
        _ZH_TITLE,
    ),
    look(
        "PERSON",
        rf"(?<![{HAN}])(?P<value>(?:{_TWO_CHARACTERS})[{HAN}]{{1,2}})(?=[,.;:()。、”\"\s]|\Z)",
        _TWO_CHARACTERS,
    ),
    look(
        "PERSON",
        r"\bmy name(?: is|['’]s) (?!(?:not|on|in|the|a|an|still|wrong|mis\w+)\b)"
        rf"(?P<value>[^\W\d_]{{2,20}}(?: {_GIVEN}){{0,2}})",
        "my name",
    ),
    look(
        "PERSON",
        rf"\b(?:Mr|Mrs|Ms|Dr|Prof)\.? (?P<value>{_GIVEN}(?: {_GIVEN}){{0,2}})",
        "mr.|mr |mrs|ms.|ms |dr.|dr |prof",
    ),
    look(
        "PERSON",  # with a middle initial
        rf"(?<![\w'’])(?!{_LETTERED}){_WORD}[ ](?-i:[B-HJ-NPR-TVW]|[A-Z]\.)[ ]{_WORD}",
        " b | c | d | e | f | g | h | j | k | l | m | n | p | r | s | t | v | w |. ",
    ),
    look(
        "PERSON",  # capitalised words in a row, one of them with a letter that English does not have
        rf"(?<![\w'’]){_WORD}(?:[ ](?:(?-i:\p{{Lu}})\.?[ ])?{_WORD}){{1,2}}",
        FOREIGN_LETTER,
        _is_foreign,
    ),
)
