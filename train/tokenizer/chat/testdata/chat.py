"""Writes chat.json: templates as published models have them, and what transformers makes of conversations with them.

    python3 chat.py      (in this directory, beside chat.json; needs jinja2)

Rendering has the settings of transformers' apply_chat_template. The templates stay what chat.json holds.
"""

import json

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

conversations = [
    [("user", "Hi <there> & \"you\"\n")],
    [("system", " Be brief. "), ("user", "What is 1 + 1?"), ("assistant", "<think>\nhm\n</think>\n\n2"), ("user", "你好 ")],
    [("user", "a"), ("assistant", "b"), ("user", "c")],
    [("assistant", "I begin.")],
]


def fail(message):
    raise jinja2.exceptions.TemplateError(message)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
env.globals["raise_exception"] = fail

content = json.load(open("chat.json"))
content["cases"] = []
for name, template in content["templates"].items():
    for messages in conversations:
        for answer in (False, True):
            listed = [dict(role=role, content=text) for role, text in messages]
            try:
                text, error = env.from_string(template).render(
                    messages=listed, add_generation_prompt=answer, bos_token="<s>", eos_token="</s>"), ""
            except jinja2.exceptions.TemplateError as e:
                text, error = "", str(e)
            content["cases"].append(dict(template=name, messages=listed, answer=answer, text=text, error=error))
json.dump(content, open("chat.json", "w"), ensure_ascii=False, indent=1)
