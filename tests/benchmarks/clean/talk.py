"""What the users and the assistants of the benchmark say: sentences with slots, in English and Chinese."""

import random
from dataclasses import dataclass

from tests.benchmarks.words import CHINESE, ENGLISH


@dataclass(frozen=True)
class Speech:
    """One language."""

    questions: tuple[str, ...]
    answers: tuple[str, ...]
    """Sentences of answers; an answer is several."""
    personal: tuple[str, ...]
    """What a user tells of themselves."""
    names: tuple[str, ...]
    places: tuple[str, ...]
    words: tuple[str, ...]
    system: str
    between: str
    sentences: tuple[int, int]
    """Fewest and most sentences of an answer."""

    def question(self, chance: random.Random) -> str:
        """What a user asks; every third one tells who they are."""
        parts = [self._filled(chance.choice(self.questions), chance)]
        if chance.random() < 0.35:
            parts.insert(chance.randint(0, 1), self._filled(chance.choice(self.personal), chance))
        return self.between.join(parts)

    def answer(self, chance: random.Random) -> str:
        """What an assistant says, now and then with a name or a number in it."""
        count = chance.randint(*self.sentences)
        return self.between.join(self._filled(sentence, chance) for sentence in chance.choices(self.answers, k=count))

    def edited(self, answer: str, chance: random.Random) -> str:
        """The answer with a sentence more, or with one of its words exchanged."""
        if chance.random() < 0.5:
            return answer + self.between + self._filled(chance.choice(self.answers), chance)
        cut = chance.randrange(len(answer))
        return answer[:cut] + chance.choice(self.words) + answer[cut + 1 :]

    def _filled(self, sentence: str, chance: random.Random) -> str:
        return sentence.format(
            word=chance.choice(self.words),
            other=chance.choice(self.words),
            name=chance.choice(self.names),
            place=chance.choice(self.places),
            number=chance.randint(2, 900),
            order=chance.randrange(10**9, 10**10),
            mobile=f"13{chance.randrange(10**8, 10**9)}",
            phone=f"({chance.randint(201, 989)}) 555-{chance.randint(100, 199):04}",
            mail=f"{chance.choice(ENGLISH)}.{chance.choice(ENGLISH)}{chance.randint(1, 99)}@example.com",
        )


ENGLISH_SPEECH = Speech(
    questions=(
        "How do I get a {word} for order {order}? The page only shows me the {other}.",
        "Where is my {word}? It was promised for last week and nobody tells me about the {other}.",
        "Can I still change the {word} after I have paid for the {other}?",
        "The {word} does not work since yesterday, I have tried the {other} {number} times.",
        "I would like to cancel the {word}, but the {other} must stay as it is.",
        "What does a {word} cost if I send the {other} to {place}?",
        "My {word} arrived without the {other}, what can I do now?",
        "Please explain the difference between a {word} and a {other} to me.",
        "Is the {word} covered when the {other} is older than {number} days?",
        "Why was the {word} refused, and who decides about the {other}?",
    ),
    answers=(
        "Thank you for your message about the {word}.",
        "Please open the page of your {word} and choose {other} in the menu at the top.",
        "It takes up to {number} hours until the {word} is confirmed; you will get a message as soon as it is done.",
        "If the {word} is not shown there, the {other} has not been booked yet.",
        "Our branch in {place} can print the {word} for you while you wait.",
        "I have asked {name} of our {word} team to look at it and to call you back.",
        "You can return it within {number} days as long as the {word} is complete and the {other} was not opened.",
        "There is no charge for the {word}, only the {other} is paid by you.",
        "Should the {word} not help, send us a photo of the {other} and we will exchange it.",
        "Please do not send the {word} back before you have received the label for the {other}.",
    ),
    personal=(
        "My name is {name} and my number is {phone}.",
        "Please write to {mail}.",
        "I live in {place}, {name} is the name on the contract.",
        "Regards, {name}",
    ),
    names=(
        "Laura Bennett",
        "James O'Connor",
        "Priya Nair",
        "Michael Turner",
        "Sofia Rossi",
        "Daniel Kim",
        "Emma Clark",
    ),
    places=("Manchester", "Boston", "Hamburg", "Dublin", "Toronto", "Lisbon", "Chicago"),
    words=tuple(ENGLISH[:60]),
    system="You are the assistant of a shop. Answer politely, in full sentences, and only about the shop.",
    between=" ",
    sentences=(2, 6),
)

CHINESE_SPEECH = Speech(
    questions=(
        "订单{order}的{word}怎么办理？页面上只显示{other}。",
        "我的{word}到哪里了？说好上周就到，{other}也没有人告诉我。",
        "{other}已经付过款了，{word}还能修改吗？",
        "从昨天开始{word}就用不了，{other}我都试了{number}次了。",
        "我想取消{word}，但是{other}要保留，可以吗？",
        "把{other}寄到{place}的话，{word}要多少钱？",
        "{word}收到了，但是少了{other}，现在怎么办？",
        "请问{word}和{other}有什么区别？",
        "{other}超过{number}天了，{word}还在保修范围内吗？",
        "{word}为什么被拒绝了？{other}是谁决定的？",
    ),
    answers=(
        "您好，感谢您咨询{word}的问题。",
        "请您打开{word}页面，在上方菜单里选择{other}。",
        "{word}一般需要{number}小时确认，完成以后会给您发送短信通知。",
        "如果页面上没有显示{word}，说明{other}还没有登记。",
        "我们在{place}的网点可以当场为您打印{word}。",
        "我已经请{word}组的{name}为您核实，稍后会给您回电。",
        "只要{word}完整、{other}没有拆封，{number}天之内都可以退货。",
        "{word}不收取任何费用，只有{other}需要您自己承担。",
        "如果{word}还是不行，请把{other}拍照发给我们，我们为您更换。",
        "收到{other}的运单之前，请先不要把{word}寄回来。",
    ),
    personal=(
        "我叫{name}，电话{mobile}。",
        "请发到邮箱{mail}",
        "我住在{place}，合同上的名字是{name}。",
        "联系人{name}，手机号是{mobile}",
    ),
    names=("王小明", "李娜", "张伟", "刘洋", "陈静", "赵敏", "周杰"),
    places=("杭州", "成都", "广州", "西安", "南京", "青岛", "沈阳"),
    words=tuple(CHINESE[:60]),
    system="你是网店的客服助手。请礼貌、完整地回答，只回答与网店有关的问题。",
    between="",
    sentences=(2, 7),
)
