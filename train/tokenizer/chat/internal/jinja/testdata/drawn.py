"""Writes drawn.json: templates drawn from the language, and what Jinja makes of them.

    python3 drawn.py [seed templates]    (in this directory; needs transformers and jinja2 3.1.6)

Most of what is drawn at random fails, and of those only a few are kept, as are none that print an
address. With a seed and a number, more are drawn and written to the standard output.
"""

import copy
import json
import random
import sys
import warnings

from transformers.utils import chat_template_utils

warnings.simplefilter("ignore")

NAMES = """msgs tool text n f flag none lst d nested missing empty uni objs x y ns.a ns.b loop.index loop.last
    loop.length loop.revindex loop.previtem loop.nextitem msgs[0] msgs[-1].content tool.function.parameters
    objs[0].name bos_token tools big neg pair true false none""".split()
TEXTS = ["a", "b c", "", "<b>&'\"", "né你好😀", " pad ", "x,y,,z", "Hello World", "%s-%s", "{} {!r:>5}",
         "{:>8.2f}|{:<4}", "role", "name", "123", "-4.5", "1_0", "0x1F", "A\\nB\\n\\nC", "ababab", "ÀÉîß", "it's"]
NUMBERS = "0 1 2 3 -1 -2 7 10 1.5 0.1 2.0 -3.25 1e3 1e20 100000 1_000 0.3".split()
BINARY = ("{} + {}|{} ~ {}|{} - {}|{} * {}|{} / {}|{} // {}|{} % {}|({}) ** {}|{} == {}|{} != {}|{} < {}|"
          "{} >= {}|{} in {}|{} not in {}|{} <= {}|{} > {}|{} and {}|{} or {}").split("|")
FILTERS = """abs; attr('name'); batch(2)|list; batch(2, 'x')|list; capitalize; center(11); count; default('D');
    d(1, true); default(@); dictsort; dictsort(true); dictsort(false,'value'); dictsort(reverse=true); e; first;
    float; float(2); format(1, 'b'); format(@); groupby('role')|list; indent; indent(2); indent(2, true);
    indent('>>', blank=true); int; int(5); int(0,16); items|list; join; join(', '); join(@);
    join('-', attribute='name'); last; length; list; lower; map('upper')|list; map(attribute='name')|list;
    map(attribute='name', default='z')|list; map('length')|list; max; min; max(attribute='n'); reject|list;
    reject('odd')|list; rejectattr('name')|list; rejectattr('n','gt',1)|list; replace('a','b'); replace('l','L',1);
    replace(@,@); reverse|list; reverse; round; round(1); round(2,'floor'); round(0,'ceil'); safe; select|list;
    select('string')|list; select('equalto', @)|list; selectattr('role','equalto','user')|list;
    selectattr('n','defined')|map(attribute='n')|list; slice(2)|list; sort; sort(reverse=true);
    sort(attribute='name'); sort(case_sensitive=true); sort(attribute='role,n'); string; sum; sum(attribute='n');
    sum(start=[]); title; tojson; tojson(indent=2); tojson(ensure_ascii=true); tojson(separators=(',',':'));
    tojson(sort_keys=true); trim; trim('a '); truncate(5); truncate(8, true); unique|list;
    unique(attribute='role')|list; upper; urlencode; wordcount; nosuch"""
METHODS = """strip(); strip(@); lstrip(); lstrip('a '); rstrip(); upper(); lower(); title(); capitalize(); split();
    split(@); split(' '); split(',', 1); split(none, 1); rsplit(' ', 1); rsplit(none, 1); splitlines();
    splitlines(true); replace(@, @); replace('a', 'b', 1); replace('', '-', 2); startswith(@);
    startswith(('a','H')); endswith('d', 1); find('o'); find('o', 5); rfind('l'); count('l'); count(@); join(@);
    join(['a','b']); partition(','); rpartition(' '); get('name'); get('a', 5); get(@, @); items(); keys();
    values(); index('l'); index(1); center(9); center(10, '*'); ljust(8); rjust(8, '<'); zfill(6); format(1, 2);
    format(@, @); swapcase(); isdigit(); isalpha(); isspace(); islower(); istitle(); isascii(); removeprefix('H');
    removesuffix('d'); expandtabs(4); casefold(); append(1); pop(); copy(); nosuch()"""
TESTS = """defined; undefined; none; string; mapping; number; integer; float; boolean; true; false; iterable; sequence;
    odd; even; divisibleby(2); divisibleby 3; eq 1; equalto('a'); ne 2; gt 1; lt(2); ge 1; in lst; in 'Hello';
    lower; upper; callable; sameas(none); escaped; filter; nosuch; in [1,'a']"""
ITEMS = """msgs; lst; d; d.items(); objs; range(3); text; [[1,2],[3,4]]; empty; msgs | reverse; d | dictsort; lst[1:];
    nested; objs | selectattr('n'); missing; 1, 2; @"""
SETS = """x = @; y = @; x, y = @, @; ns.a = @; ns.b = ns.b + [@]; x = @, @"""
VARIABLES = {
    "msgs": [{"role": "user", "content": "Hello"},
             {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
             {"role": "user", "content": [{"type": "text", "text": "p"}]}],
    "tool": {"type": "function", "function": {"name": "get", "description": "d <x>", "parameters": {
        "type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "number", "default": 1.0}}}}},
    "text": "Hello World", "n": 3, "f": 2.5, "flag": True, "lst": [3, 1, 2, "b", "a"],
    "d": {"name": "N", "b": 2, "a": [1, {"k": None}], "C": 1.5}, "nested": [[1, 2], [3, [4]]], "empty": [],
    "uni": "né你好 😀\u200b\u00ad", "big": 2**40, "neg": -7, "pair": [["k", 1], ["l", 2]], "bos_token": "<s>",
    "objs": [{"name": "b", "n": 2, "role": "user"}, {"name": "A", "n": 1, "role": "tool"}, {"name": "c", "role": "user"}],
    "tools": None,
}


class Drawer:
    def __init__(self, seed):
        self.random, self.macros = random.Random(seed), []

    def of(self, table, depth=1):
        """One of a table, with expressions in place of @."""
        parts = self.random.choice(table.split(";")).strip().split("@")
        return "".join(p + (self.expression(depth) if i + 1 < len(parts) else "") for i, p in enumerate(parts))

    def chance(self, p):
        return self.random.random() < p

    def text(self):
        t = self.random.choice(TEXTS)
        q = '"' if "'" in t else "'"
        return q + t.replace('"', '\\"' if q == '"' else '"') + q

    def atom(self):
        return self.random.choice([self.text, lambda: self.random.choice(NUMBERS),
                                   lambda: self.random.choice(NAMES), lambda: self.random.choice(NAMES)])()

    def inner(self, depth):
        e = self.expression(depth)
        return e if e.replace(".", "").replace("_", "").isalnum() else "(" + e + ")"

    def expression(self, depth):
        if depth <= 0 or self.chance(.1):
            return self.atom()
        deeper, inner = (lambda: self.expression(depth - 1)), (lambda: self.inner(depth - 1))
        several = lambda low, high: ", ".join(deeper() for _ in range(self.random.randint(low, high)))
        return self.random.choices([
            lambda: self.random.choice(BINARY).format(inner(), inner()),
            lambda: "not " + inner(),
            lambda: f"({deeper()} if {deeper()} else {deeper()})",
            lambda: f"({deeper()} if {deeper()})",
            lambda: "[" + several(0, 3) + "]",
            lambda: "(" + several(1, 2) + ",)",
            lambda: "{" + ", ".join(f"{self.text()}: {deeper()}" for _ in range(self.random.randint(0, 3))) + "}",
            lambda: inner() + "[" + self.random.choice(["0", "-1", "1", "'name'", "'content'", "5", self.atom()]) + "]",
            lambda: self.random.choice(["msgs", "text", "lst", "uni", "pair", "nested"]) + "["
            + self.random.choice(["1:", "::-1", ":-1", "::2", "1:3", "-2:", "3:0:-1"]) + "]",
            lambda: inner() + "." + self.random.choice("name content role a items keys 0 function".split()),
            lambda: inner() + "." + self.of(METHODS),
            lambda: inner() + " | " + self.of(FILTERS),
            lambda: inner() + " is " + self.random.choice(["", "not "]) + self.of(TESTS),
            lambda: self.random.choice(["-", "+"]) + inner(),
            lambda: "range(" + several(1, 3) + ")",
            lambda: "dict(" + self.random.choice(["a=1", "d", "[('a',1),(2,3)]", "d, b=2", "**d"]) + ")",
        ], [20, 3, 6, 1, 6, 3, 4, 5, 4, 5, 11, 18, 8, 1, 1, 1])[0]()

    def tag(self, inside):
        begin, end = self.random.choice(["{%", "{%", "{%-", "{%+"]), self.random.choice(["%}", "%}", "-%}", "+%}"])
        return f"{begin} {inside} {end}"

    def body(self, depth):
        return "".join(self.statement(depth) for _ in range(self.random.randint(0, 3)))

    def block(self, word, begin, depth):
        return self.tag(f"{word} {begin}") + self.body(depth - 1) + self.space() + self.tag("end" + word)

    def space(self):
        return self.random.choice(["", "", "", "\n", "\n  ", " ", "\t", "  \n\n"])

    def output(self):
        return self.random.choice(["{{ ", "{{- "]) + self.expression(self.random.randint(1, 3)) + self.random.choice([" }}", " -}}"])

    def loop(self, depth):
        head = self.random.choice(["x", "x", "y", "x, y"]) + " in " + self.of(ITEMS)
        head += " if " + self.expression(2) if self.chance(.2) else ""
        jump = self.tag("if " + self.expression(1)) + self.tag(self.random.choice(["break", "continue"])) + self.tag("endif")
        body = self.body(depth - 1) + (jump if self.chance(.2) else "") + self.body(depth - 1)
        other = self.tag("else") + self.body(depth - 1) if self.chance(.2) else ""
        return self.tag("for " + head) + body + other + self.tag("endfor")

    def choice(self, depth):
        parts = self.tag("if " + self.expression(2)) + self.body(depth - 1)
        parts += self.tag("elif " + self.expression(2)) + self.body(depth - 1) if self.chance(.3) else ""
        parts += self.tag("else") + self.body(depth - 1) if self.chance(.5) else ""
        return parts + self.tag("endif")

    def macro(self, depth):
        name = f"m{len(self.macros)}"
        self.macros.append(name)
        extra = self.random.choice(["", "{{ a }}", "{{ caller() }}", "{{ varargs }}", "{{ kwargs }}"])
        head = name + "(" + self.random.choice(["", "a", "a, b=1", "a, b=a", "x, y=2"]) + ")"
        given = self.random.choice(["", "1", "1, 2", "a=3", "b=2, a=1", "1, 2, 3", "1, z=2"])
        return self.tag("macro " + head) + self.body(depth - 1) + extra + self.tag("endmacro") + "{{ %s(%s) }}" % (name, given)

    def statement(self, depth):
        if depth <= 0 or self.chance(.4):
            return self.space() + self.output()
        return self.space() + self.random.choice([
            lambda: self.random.choice(["plain text", "a\n", "<x>", "{ not }", "  \n  line", "%", "#"]),
            lambda: self.choice(depth), lambda: self.choice(depth), lambda: self.loop(depth), lambda: self.loop(depth),
            lambda: self.tag("set " + self.of(SETS)), lambda: self.block("set", "x", depth),
            lambda: self.block("filter", self.random.choice(["upper", "trim", "indent(2)"]), depth),
            lambda: self.block("with", "x = " + self.expression(2) + ", y = 2", depth),
            lambda: self.block("generation", "", depth), lambda: self.macro(depth),
            lambda: self.block("call", self.random.choice(self.macros or ["x"]) + "()", depth),
            lambda: self.tag("raw").replace("+%}", "%}") + "{{ raw }} {% x %}\n" + self.tag("endraw"),
            lambda: self.random.choice(["{#", "{#-"]) + " comment " + self.random.choice(["#}", "-#}"]),
        ])()

    def template(self):
        if self.chance(.5):
            return "{{ " + self.expression(self.random.randint(1, 3)) + " }}"
        begin = "{% set ns = namespace(a=1, b=[]) %}"
        return begin + "".join(self.statement(3) for _ in range(self.random.randint(1, 4))) + self.random.choice(["", "\n", "\n\n"])


def case(seed):
    source = Drawer(seed).template()
    try:
        text = chat_template_utils._compile_jinja_template.__wrapped__(source).render(**copy.deepcopy(VARIABLES))
        return dict(source=source, text=text, refused=False)
    except Exception:
        return dict(source=source, text="", refused=True)


def known(c):
    return not any(word in c["text"] for word in ("object at 0x", "<built-in", "<bound", "<function"))


if len(sys.argv) > 1:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    cases = [c for c in map(case, range(first, first + count)) if known(c)]
    json.dump(dict(variables=VARIABLES, cases=cases), sys.stdout, ensure_ascii=False)
else:
    cases = [c for seed, c in enumerate(map(case, range(1500))) if known(c) and len(c["source"]) + len(c["text"]) < 400
             and (not c["refused"] or seed % 12 == 0)]
    json.dump(dict(variables=VARIABLES, cases=cases), open("drawn.json", "w"), ensure_ascii=False, indent=0)
