#!/usr/bin/env python3
"""Writes tests/text/golden/templates.json: templates, variables and what the reference implementation renders.

usage: tools/template_golden.py [--gguf model.gguf] [--shared DIR] > tests/text/golden/templates.json

Needs jinja2 >= 3.1.6. The environment is set up as the Transformers library does it. --gguf adds the chat template of a
model file (needs the gguf package); --shared adds, for every DIR/*.jinja, a hash and the length of each standard
conversation's text, not the template.
"""
import argparse
import datetime
import glob
import json
import os

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1721997296  # 2024-07-26 12:34:56 UTC


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(fmt):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(fmt)


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            Namespace._check(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        Namespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, namespace=Namespace)
    return env


def render(template, variables):
    """(text, None) or (None, reason)."""
    try:
        return environment().from_string(template).render(**json.loads(json.dumps(variables))), None
    except RecursionError:
        raise
    except Exception as e:  # any failure of the reference is the expected outcome
        return None, type(e).__name__


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 % (1 << 64)
    return f"{h:016x}"


TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a place",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "Name of the city"},
        "unit": {"type": "string", "enum": ["c", "f"]}, "days": {"type": "integer"}}}}}
CALL = {"id": "call00001", "type": "function",
        "function": {"name": "get_weather", "arguments": {"city": "Genève", "days": 2}}}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
CONVERSATIONS = {
    "user": {"messages": [{"role": "user", "content": "Hello, wörld! 你好"}], "add_generation_prompt": True},
    "turns": {"messages": [{"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": " 1+1? "},
                           {"role": "assistant", "content": "2"}, {"role": "user", "content": "<|im_end|> sure?"}],
              "add_generation_prompt": True},
    "closed": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
               "add_generation_prompt": False},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}],
              "add_generation_prompt": True},
    "thinking": {"messages": [{"role": "user", "content": "q"},
                              {"role": "assistant", "content": "<think>\nhm\n</think>\n\nanswer", "reasoning_content": "hm"},
                              {"role": "user", "content": "again"}],
                 "add_generation_prompt": True, "enable_thinking": True},
    "nothink": {"messages": [{"role": "user", "content": "q"}], "add_generation_prompt": True, "enable_thinking": False},
    "tools": {"messages": [{"role": "user", "content": "Weather?"}], "tools": [TOOL], "add_generation_prompt": True},
    "toolcall": {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Weather?"},
                              {"role": "assistant", "content": "", "tool_calls": [CALL]},
                              {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "{\"t\": 21.5}"},
                              {"role": "assistant", "content": "21.5 degrees"}, {"role": "user", "content": "Thanks"}],
                 "tools": [TOOL], "add_generation_prompt": True},
    "empty": {"messages": [], "add_generation_prompt": False},
}

CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
          "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
CHAT_TEMPLATES = [
    CHATML,
    """{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = 'You help.' %}
    {%- set rest = messages %}
{%- endif %}
{{- '<|im_start|>system\\n' ~ system ~ '<|im_end|>\\n' }}
{%- for m in rest %}
    {%- if m.role not in ['user', 'assistant', 'tool'] %}
        {{- raise_exception('unknown role ' ~ m.role) }}
    {%- endif %}
    {%- if m.content is string %}
        {{- '<|im_start|>' ~ m.role ~ '\\n' ~ m.content }}
    {%- else %}
        {{- '<|im_start|>' ~ m.role ~ '\\n' }}
        {%- for part in m.content if part.type == 'text' %}{{ part.text }}{% if not loop.last %}|{% endif %}{%- endfor %}
    {%- endif %}
    {%- for c in m.tool_calls or [] %}
        {{- '\\n<tool_call>' ~ {'name': c.function.name, 'arguments': c.function.arguments} | tojson ~ '</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    """{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{% endif %}
{% if message['role'] == 'user' %}[INST] {{ message['content'] | trim }} [/INST]{% else %}{% generation %}{{ message['content'] }}{{ eos_token }}{% endgeneration %}{% endif %}
{% endfor %}""",
    """{%- macro show(tool) -%}
{{ tool.function.name }}(
{%- for k, v in tool.function.parameters.properties.items() -%}
{{ k }}: {{ v.type }}{% if v.enum is defined %} = {{ v.enum | join('/') }}{% endif %}{% if not loop.last %}, {% endif %}
{%- endfor -%})
{%- endmacro -%}
{%- set ns = namespace(n=0, text='') -%}
{%- for t in tools or [] %}{% set ns.n = ns.n + 1 %}{% set ns.text = ns.text ~ show(t) ~ ';' %}{% endfor -%}
{{ ns.n }} {{ ns.text }}
{% for m in messages %}
    {% if loop.first %}
    first
    {% endif %}
    {# a comment #}
<|{{ m.role }}|>
{{ m.content }}
    {%- if not loop.last +%}
    ,
    {%- endif %}
{% endfor %}
""",
]

D = {"d": {"b": 1, "a": [1, 2.5, None, True, "x'y"], "items": "key", "n": {"m": "deep"}}, "l": [3, 1, 2], "s": "Hello World",
     "u": "Ünï→😀", "e": "", "z": 0, "n": None, "f": 2.5, "t": True,
     "users": [{"name": "bob", "age": 30, "x": {"y": 1}}, {"name": "Al", "age": 25, "x": {"y": 2}}, {"name": "carl", "age": 30}]}
SNIPPETS = r"""
{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }}
{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1e16 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ 123456789.125 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }}
{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ +3 }} {{ --3 }} {{ 1 - -1 }} {{ not true }} {{ not not 1 }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 'a' != 'b' }} {{ none == none }} {{ (1,) == [1] }}
{{ 1 in l }} {{ 9 not in l }} {{ 'ell' in s }} {{ 'b' in d }} {{ x in l }} {{ 'x' in {} }} {{ '' in s }}
{{ 1 in 5 }}
{{ 'a' in n }}
{{ 1 in s }}
{{ true and 'x' }} {{ 0 or 'y' }} {{ '' or none }} {{ 1 and 0 or 2 }} {{ true or x.y.z }} {{ not none and 1 }}
{{ 'a' if true else 'b' }} {{ 'a' if false else 'b' }}[{{ 'a' if false }}] {{ 1 if 0 else 2 if 0 else 3 }}
{{ 'a' ~ 1 ~ none ~ 2.0 ~ true ~ x }} {{ 1 ~ 2 ~ 3 }}
{{ 1 ~ 2 + 3 }}
{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1] + [2] }} {{ [0] * 3 }} {{ (1,) + (2,) }} {{ 'x' * -1 }}
{{ 'a' + 1 }}
{{ 1 + none }}
{{ [1] + (2,) }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 5 % 0 }}
{{ 0 ** -1 }}
{{ 'a' < 1 }}
{{ none < none }}
{{ none }} {{ true }} {{ false }} {{ None }} {{ True }} {{ False }}
{{ [1, 'a', "it's", none, true, 1.0, {'k': [1]}] }} {{ (1,) }} {{ () }} {{ (1, 2) }} {{ {} }} {{ [] }} {{ {'a': 1, 2: 'b', none: true} }}
{{ ["\n\t\\", 'q"', "b'\"", "é", "\x00\x7f", "\u200b"] }}
{{ '\x41\u00e9\101\q\'' }} {{ "a" 'b' }} {{ "tab\there" }}
{{ d }} {{ l }} {{ users[0] }}
{{ d.b }} {{ d['a'] }} {{ d.n.m }} {{ d['items'] }} {{ d.a[-1] }} {{ d.a.0 }} {{ l[9] }} {{ d.zz }} {{ s[0] }} {{ s[-1] }} {{ u[3] }} {{ u|length }}
{{ x.y }}
{{ d.zz.y }}
{{ x[0] }}
{{ x() }}
{{ n.a }} {{ z.a }} {{ s.nothing }} {{ l.foo }}
{{ n.a.b }}
{{ s() }}
{{ d.b() }}
{{ l[1:] }} {{ l[:1] }} {{ l[::-1] }} {{ l[-2:] }} {{ s[1:4] }} {{ s[::-2] }} {{ s[:-3] }} {{ u[2:4] }} {{ s[20:] }} {{ l[5:1] }} {{ (1, 2, 3)[1:] }} {{ l[none:2] }} {{ s[100::-1] }}
{{ l['a':] }}
{{ l[::0] }}
{{ d[[1]] }} {{ d[1:2] }}
{{ x }}[{{ x|default('dflt') }}] {{ x|d }} {{ e|default('no', true) }} {{ n|default('k') }} {{ n|d('k', boolean=true) }} {{ z|d(5) }} {{ d.q|default([]) }}
{{ x is defined }} {{ s is defined }} {{ d.q is undefined }} {{ x is not defined }} {{ n is none }} {{ z is not none }}
{{ s is string }} {{ l is string }} {{ d is mapping }} {{ l is mapping }} {{ l is iterable }} {{ s is iterable }} {{ z is iterable }} {{ d is sequence }} {{ l is sequence }} {{ s is sequence }} {{ x is iterable }} {{ x is sequence }} {{ n is iterable }}
{{ z is number }} {{ f is number }} {{ t is number }} {{ s is number }} {{ z is integer }} {{ t is integer }} {{ f is float }} {{ z is float }} {{ t is boolean }} {{ z is boolean }} {{ t is true }} {{ t is false }} {{ 1 is true }} {{ z is false }}
{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 'ab' is lower }} {{ 'AB' is upper }} {{ 'Ab' is upper }} {{ '1' is lower }} {{ 2 is in l }} {{ 5 is eq 5 }} {{ 5 is equalto 6 }} {{ 5 is ne(6) }} {{ 5 is gt 4 }} {{ 5 is lessthan 4 }} {{ 5 is ge 5 }} {{ 5 is le 4 }} {{ none is sameas none }} {{ range is callable }} {{ s is callable }}
{{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }}
{{ not x is defined }} {{ z is defined and s is string }} {{ 1 + 1 is odd }} {{ -1 is odd }}
{{ x is odd }}
{{ s is nosuchtest }}
{{ s|nosuchfilter }}
{% if false %}{{ s|nosuchfilter }}{% endif %}ok {{ (s|nosuch) if false else 1 }}
{% if true %}{{ s|nosuchfilter }}{% endif %}
{{ '  a b '|trim }}| {{ 'xxaxx'|trim('x') }} {{ x|trim }} {{ 5|trim }} {{ none|trim }}
{{ s|upper }} {{ s|lower }} {{ 'hELLO wORLD'|capitalize }} {{ "hello wORLD-foo (bar) it's"|title }} {{ "hello wORLD it's x1y"|string|title }} {{ 'straße ŉ'|upper }} {{ 'ΑΣ ΣΑΣ.'|lower }} {{ u|upper }} {{ u|lower }} {{ 'ǆ'|capitalize }} {{ 5|upper }} {{ x|upper }}
{{ "hello wORLD it's x1y".title() }} {{ 'ß'.title() }} {{ 'ﬁn ΐ'.upper() }} {{ 'aBc'.swapcase() }} {{ 'İ'.lower() }}
{{ l|length }} {{ s|count }} {{ d|length }} {{ x|length }} {{ range(3)|length }} {{ d.items()|length }}
{{ 5|length }}
{{ n|length }}
{{ l|first }} {{ l|last }} {{ s|first }} {{ s|last }} {{ []|first }}[{{ []|last }}] {{ d|first }} {{ d|last }}
{{ l|join }} {{ l|join(', ') }} {{ users|join('-', attribute='name') }} {{ s|join('.') }} {{ [1, none, 'a']|join(1) }} {{ x|join(',') }} {{ d|join(' ') }} {{ []|join('x') }}
{{ 5|join }}
{{ 'aXbXc'|replace('X', '-') }} {{ 'aXbXc'|replace('X', '-', 1) }} {{ 'abc'|replace('', '.') }} {{ 5|replace('5', 'y') }} {{ 'a'|replace('a', 1) }} {{ 'abc'|replace('', '-', 2) }}
{{ d|tojson }} {{ l|tojson }} {{ s|tojson }} {{ n|tojson }} {{ t|tojson }} {{ f|tojson }} {{ u|tojson }} {{ u|tojson(ensure_ascii=true) }} {{ "\"\\/\n\t\x01\x7f<>&'"|tojson }} {{ 1e20|tojson }} {{ (1, 2)|tojson }}
{{ d|tojson(indent=2) }} {{ []|tojson(indent=2) }} {{ {}|tojson(indent=2) }} {{ [[], {}, [1]]|tojson(indent=1) }} {{ l|tojson(indent='--') }} {{ l|tojson(indent=0) }}
{{ d|tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ d|tojson(indent=2, separators=(', ', ' = ')) }}
{{ x|tojson }}
{{ range|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ d.items()|tojson }}
{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %} {{ x|items|list }}
{{ l|items|list }}
{{ 'abc'|list }} {{ d|list }} {{ range(3)|list }} {{ x|list }} {{ (1, 2)|list }}
{{ 5|list }}
{{ users|map(attribute='name')|list }} {{ users|map(attribute='x.y', default=0)|list }} {{ ['a', 'b']|map('upper')|join(',') }} {{ l|map('string')|list }} {{ [' a ', 'b']|map('trim')|list }} {{ ['a']|map('replace', 'a', 'b')|list }} {{ [[1, 2], [3]]|map('first')|list }} {{ [[1, 2]]|map(attribute=1)|list }}
{{ users|map(attribute='x.y')|list }}
{{ l|map|list }}
{{ l|map('nosuch')|list }}
{{ [0, 1, '', 'a']|select|list }} {{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ l|select('>', 1)|list }} {{ l|select('equalto', 2)|list }} {{ [0, 1]|reject|list }} {{ l|select('in', [1, 3])|list }}
{{ users|selectattr('age', 'equalto', 30)|map(attribute='name')|join(',') }} {{ users|rejectattr('x')|map(attribute='name')|list }} {{ users|selectattr('x')|list|length }} {{ users|selectattr('x', 'defined')|list|length }} {{ users|rejectattr('age', '>', 26)|list }}
{% set g = l|select('odd') %}{{ g|list }}{{ g|list }} {{ (l|map('string'))|first }} {% set h = l|map('string') %}{{ h|first }}{{ h|list }}
{{ (l|select('odd'))|length }}
{{ (l|select('odd'))[0] }} {% if []|select %}true{% endif %}
{{ l|sort }} {{ l|sort(reverse=true) }} {{ ['b', 'A', 'c']|sort }} {{ ['b', 'A', 'c']|sort(case_sensitive=true) }} {{ users|sort(attribute='age')|map(attribute='name')|list }} {{ users|sort(attribute='age,name')|map(attribute='name')|list }} {{ users|sort(true, attribute='age')|map(attribute='name')|list }} {{ 'hello'|sort }}
{{ [1, 'a']|sort }}
{{ l|reverse|list }} {{ 'abc'|reverse }} {{ u|reverse }} {% for i in l|reverse %}{{ i }}{% endfor %}
{{ [1, 2, 1, 'a', 'A', 1.0]|unique|list }} {{ ['a', 'A']|unique(case_sensitive=true)|list }} {{ users|unique(attribute='age')|map(attribute='name')|list }}
{{ {'b': 1, 'A': 3, 'c': 2}|dictsort }} {{ {'b': 1, 'A': 3}|dictsort(true) }} {{ {'b': 1, 'A': 3}|dictsort(by='value', reverse=true) }} {% for k, v in d.n|dictsort %}{{ k }}{{ v }}{% endfor %}
{{ l|dictsort }}
{{ l|batch(2)|list }} {{ l|batch(2, 'x')|list }}
{{ l|min }} {{ l|max }} {{ ['b', 'A']|min }} {{ users|max(attribute='age') }} [{{ []|min }}] {{ l|sum }} {{ users|sum(attribute='age') }} {{ [0.1, 0.2, 0.3]|sum }} {{ [1]|sum(start=10) }} {{ []|sum }}
{{ ['a']|sum }}
{{ '42'|int }} {{ '4.9'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '0x1f'|int(0, 16) }} {{ '1f'|int(base=16) }} {{ 4.99|int }} {{ -4.99|int }} {{ (-4.99)|int }} {{ ' 12 '|int }} {{ '1_000'|int }} {{ none|int }} {{ true|int }} {{ '1e3'|int }} {{ '+5'|int }} {{ '--5'|int }} {{ '0b11'|int(base=2) }} {{ ''|int }} {{ '0x'|int }}
{{ x|int }}
{{ '1.5'|float }} {{ 'x'|float }} {{ '1e3'|float }} {{ 3|float }} {{ 'inf'|float }} {{ none|float(1) }} {{ '0x10'|float }}
{{ 3.7|round }} {{ 2.5|round }} {{ 3.14159|round(2) }} {{ 3.2|round(method='ceil') }} {{ 3.7|round(0, 'floor') }} {{ 42|round }} {{ 1.005|round(2) }} {{ 1234.5|round(-2) }}
{{ -5|abs }} {{ (-5)|abs }} {{ (-2.5)|abs }} {{ true|abs }}
{{ 'x'|abs }}
{{ 5|string + 'x' }} {{ [1]|string }} {{ none|string }} {{ x|string }}|
{{ 'a\nb\n\nc'|indent }}| {{ 'a\nb'|indent(2, true) }} {{ 'a\n\nb\n'|indent(2, blank=true) }}| {{ 'a\nb'|indent('> ') }} {{ ''|indent(2, true) }}| {{ '\na'|indent(1, first=true) }}
{{ "Hello, it's 3 wörds_x"|wordcount }} {{ 'abc'|center(9) }}| {{ 'abcd'|center(7) }}| {{ 'hello world foo bar'|truncate(11) }} {{ 'hello world foo bar'|truncate(11, true, '>', 0) }} {{ 'hello'|truncate(3, leeway=0) }}
{{ '%s-%d-%5.2f|%-4s|%04d|%x|%r|%%' % ('a', 3, 2.345, 'b', 7, 255, "q'") }} {{ '%s' % 'x' }} {{ '%s' % none }} {{ '%(a)s' % {'a': 1} }} {{ '%s %s'|format('a', 1) }} {{ '%(x)d'|format(x=5) }} {{ '%+d' % 5 }} {{ '%5s|' % 'é' }} {{ '%.2s' % 'abc' }} {{ '%e' % 12345.678 }} {{ '%g' % 0.0001 }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'x' }}
{{ '%s' % (1, 2) }}
{{ '{} {}'.format('a', 1) }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}!{{}}'.format(x=3) }} {{ '{!r}'.format('q') }}
{{ '{0}'.format() }}
{{ '  a '.strip() }}|{{ '  a '.lstrip() }}|{{ '  a '.rstrip() }}|{{ 'xyaxy'.strip('yx') }} {{ 'xa'.lstrip('x') }} {{ 'ax'.rstrip('x') }} {{ ' a'.strip(none) }}
{{ 'a,b,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c'.split(none, 1) }} {{ ' a b  c '.split(maxsplit=1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a</think>b</think>c'.split('</think>')[-1] }} {{ 'aXXb'.rsplit('X') }}
{{ 'a'.split('') }}
{{ 'hello'.startswith('he') }} {{ 'hello'.endswith(('x', 'lo')) }} {{ 'hello'.startswith('l', 2) }} {{ 'hello'.startswith('') }} {{ ''.startswith('a') }} {{ 'hello'.endswith('l', 0, 4) }}
{{ 'hello'.startswith(1) }}
{{ 'hello'.replace('l', 'L') }} {{ 'hello'.replace('l', 'L', 1) }} {{ 'hello'.find('l') }} {{ 'hello'.find('z') }} {{ 'hello'.rfind('l') }} {{ 'hello'.find('l', 3) }} {{ 'hello'.count('l') }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('') }} {{ 'ü→x'.find('x') }} {{ 'abab'.rfind('ab', 0, 3) }} {{ 'abc'.find('', 5) }} {{ 'abc'.rfind('') }}
{{ ', '.join(['a', 'b']) }} {{ '-'.join('abc') }} {{ ''.join(d) }}
{{ ','.join([1]) }}
{{ 'a b'.partition(' ') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }}
{{ 'a\nb\r\nc\x0bd\n'.splitlines() }} {{ 'a\n'.splitlines(true) }} {{ ''.splitlines() }} {{ '\n'.splitlines() }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ 'x'.removesuffix('') }} {{ 'abc'.zfill(5) }} {{ '-5'.zfill(4) }} {{ 'a'.rjust(3, '.') }} {{ 'a'.ljust(3) }}| {{ 'ab'.center(5, '*') }} {{ 'abc'.center(6) }}|
{{ 'abc'.isalpha() }} {{ 'a1'.isalnum() }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ ' '.isspace() }} {{ 'aB'.islower() }} {{ 'AB1'.isupper() }} {{ 'é'.isalpha() }}
{{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 'dd') }} {{ d.keys() }} {{ d.n.values() }} {{ d.n.items() }} {{ d.n.items()|list }} {{ d.keys()|list }} {{ 'b' in d.keys() }} {% for k, v in d.n.items() %}{{ k }}{{ v }}{% endfor %} {{ d.items is defined }}
{{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }} {{ (1, 1).count(1) }}
{{ [1].index(9) }}
{{ l.append(4) }}
{{ d.update({'a': 1}) }}
{% do l.append(1) %}
{{ d.pop('a') }}
{{ l.append is defined }}[{{ l.append }}]
{{ range(3) }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ range(10)[2:8:3]|list }} {{ range(3)[1] }} {{ 2 in range(3) }} {{ range(0, 6, 2) }} {{ range(4)[1:] }}
{{ range(1000000) }}
{{ range('a') }}
{{ range(1, 2, 0) }}
{{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'q': 1}, z=2) }}
{% set ns = namespace(a=1) %}{% set ns.b = 2 %}{{ ns.a }}{{ ns.b }}{{ ns.c }} {{ ns }}
{% set ns = namespace({'q': 5}) %}{{ ns.q }} {{ ns['q'] }}
{% set d.b = 2 %}
{% set ns = namespace() %}{% set ns._x = 2 %}
{{ raise_exception('boom') }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %d %b %Y %B %A %a %y %j %p %I %-d %e %%') }}
{% if z %}a{% elif l %}b{% else %}c{% endif %} {% if x %}a{% elif e %}b{% else %}c{% endif %}
{% if 1, %}tuple{% endif %}
{% for i in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }} {% endfor %}
{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %} {% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %} {% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}
{% for i in l if i > 1 %}{{ loop.index }}:{{ i }} {% else %}none{% endfor %} {% for i in [] %}x{% else %}empty{% endfor %} {% for i in l if i > 9 %}{{ i }}{% else %}nothing{% endfor %}
{% for a, b in [(1, 2), [3, 4]] %}{{ a }}+{{ b }} {% endfor %}{% for (a, b) in [(1, 2)] %}{{ a }}{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}
{% for c in u %}[{{ c }}]{% endfor %}{% for k in d.n %}{{ k }}{% endfor %}{% for i in x %}never{% endfor %}
{% for i in 5 %}{% endfor %}
{% for i in none %}{% endfor %}
{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% if i == 2 %}{% break %}{% endif %}{% endfor %} {% for i in l %}{% break %}{% else %}no{% endfor %}
{% break %}
{% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }}{{ loop.index }} {% endfor %}{{ loop.index }};{% endfor %}
{% set q = 1 %}{% for i in l %}{{ q }}{% set q = q + 1 %}{% endfor %}{{ q }} {% for i in l %}{{ w is defined }}{% set w = 1 %}{% endfor %}{{ w is defined }} {% if true %}{% set v = 3 %}{% endif %}{{ v }}
{% for i in l %}{% endfor %}{{ i is defined }} {{ loop is defined }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set c = 1, 2 %}{{ c }} {% set t2 = () %}{{ t2 }}
{% set a, b = [1] %}
{% set x1 %}block {{ s }}{% endset %}{{ x1 }}|{{ x1|length }} {% set y1 | upper | replace('A', 'z') %}abc{% endset %}{{ y1 }}
{% set loop = 1 %}
{% set 5 = 1 %}
{% macro m(a, b=2, c=a) %}[{{ a }},{{ b }},{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m() }} {{ m.name }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(z=2) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }} {{ f(3)|length }} {{ f(2) + 'x' }}
{% macro outer() %}<{{ caller() }}>{% endmacro %}{% call outer() %}in {{ s }}{% endcall %} {% macro each(xs) %}{% for i in xs %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(v, k) each(l) %}{{ k }}={{ v }} {% endcall %}
{% macro nocall() %}x{% endmacro %}{% call nocall() %}y{% endcall %}
{% macro m() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ m() }} {% macro k(a) %}{% set a = a + 1 %}{{ a }}{% endmacro %}{{ k(1) }}{{ a is defined }}
{% for i in l %}{% macro inner() %}{{ i }}{% endmacro %}{{ inner() }}{% endfor %}
{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a', 'b')|title %}aaa{% endfilter %}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }} {% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}
{% generation %}gen {{ s }}{% set inside = 1 %}{% endgeneration %}{{ inside is defined }}
{% for i in [1, [2, [3]]] recursive %}{% if i is iterable %}({{ loop(i) }}){% else %}{{ i }}{{ loop.depth }}{% endif %}{% endfor %}
{% raw %}{{ not }} {% rendered %}{# x #}{% endraw %} {%- raw -%}  a  {%- endraw -%}  b
{# comment #}a{#- strip -#}  b
[{{ x|last }}{{ x|first }}] {{ x|reverse|list }} {{ x|sort }} {{ x|map('upper')|list }} {{ x|unique|list }} {{ x|batch(2)|list }} {{ x|min }} {{ x|sum }} {{ x|replace('a', 'b') }} {{ x|title }} {{ x|wordcount }} {{ n|map('upper')|list }} {{ n|selectattr('a')|list }} {{ 0|reject|list }}{{ x in x }} {{ x == y }} {{ x != y }}
{{ x|dictsort }}
{{ x|indent }}
{% for i in l %}{% continue %}{% else %}E{% endfor %} {% for i in l %}{% if i > 1 %}{% continue %}{% endif %}{% else %}E{% endfor %}
{{ 5|indent }}
{{ 5|map('upper')|list }}
{{ x|abs }}
{{ x|round }}
{{ x|float }}
{{ 'a' in x }} {{ x is callable }} {{ x is eq y }} {{ x is none }} {{ [x] }} {{ [x]|join('-') }} {{ x or 'o' }} {{ not x }} {{ x and y.z }}
{{ x + 1 }}
{{ x ~ 1 }} {{ x if x else 'E' }} {{ (x if x else y) is defined }}
{{ x < 1 }}
{{ -x }}
{{ x[1:] }}
{{ n[1:] }}
{% for loop in l %}{% endfor %}
{% for i in l %}{% set loop = 1 %}{% endfor %}
{{ d.n.m.upper().lower()[1:] ~ d['n']['m']|first }} {{ (l + [4])|sum }} {{ l|length == 3 and s|length > 2 }} {{ s|length + 1 }} {{ 2 * l|length }} {{ not l|length == 3 }} {{ -l|first }}
{{ 'a' if x is defined else 'b' ~ 'c' }} {{ ('a' if z else 'b') ~ 'c' }} {{ 1 if z else 2 + 3 }} {{ d.b + 1 if d.b else 0 }}
{{ 9223372036854775807 }} {{ -9223372036854775807 }} {{ 9223372036854775807 // 2 }} {{ 9223372036854775807 == 9223372036854775807.0 }} {{ 1 < 1.5 < 2 }} {{ 2 ** 62 }}
{{ 9007199254740993 == 9007199254740992.0 }} {{ 9007199254740993 > 9007199254740992.0 }} {{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ {1: 'a'}[true] }} {{ {(1, 2): 'p'}[(1, 2)] }}
{{ {'a': 1}.get([]) }}
{{ {[]: 1} }}
{{ {'k1':1,'k2':2,'k3':3,'k4':4,'k5':5,'k6':6,'k7':7,'k8':8,'k9':9,'k10':10,'k9':99}['k9'] }} {{ {'a': 1} == {'a': 1.0} }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ [1, [2]] == [1, [2]] }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {'x': 1}.x }} {{ [[1, 2], [3]][0][1] }} {{ ('a')[0] }} {{ 'abc'[1] }} {{ "%s" % {"a": 1} }}
{{ f }} {{ -0.0 }} {{ 1.0 }} {{ 100.0 * 1.1 }} {{ 5 / 3 }} {{ 1e400 }} {{ -1e400 }} {{ 3.0 // 2 }} {{ 1e22 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}
{{ [true, false] }} {{ [1.0, 2e20] }} {{ true + true }} {{ true * 3 }}
{{ m.x(1) }}
{{ (1, 2, 3)|last }} {{ 'x'|attr('upper') is callable }} {{ d|attr('b') is defined }} {{ users[0]|attr('name') }}|
{{ m(*[1, 2]) }}
{% macro m(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2], **{'c': 3}) }} {{ m(1, *[2]) }} {{ dict(**d.n) }}
{{ '<b>'|safe }} {{ ('<b>'|safe) ~ '<i>' }} {{ 'x<' ~ ('y'|safe) }} {{ ('a'|safe) + '&' }} {{ ['a'|safe] }} {{ ('<'|safe)|trim ~ '"' }}
{{ 1 if true }} {{ [x for x in l] }}
{{ 1 +
{{ (1 }}
{{ [1, 2 }}
{{ 'abc }}
{{ 1 2 }}
{{ }}
{{ a b }}
{% if %}x{% endif %}
{% if true %}x
{% for %}{% endfor %}
{% for i on l %}{% endfor %}
{% endif %}
{% nosuch %}
{% else %}
{{ 1 ! 2 }}
{{ f(a=1, 2) }}
{{ f(a=1, a=2) }}
{{ 'a' is string is string }}
{% macro m(a=1, b) %}{% endmacro %}
{% macro m(a, a) %}{% endmacro %}
{# open
{% raw %} open
{{ '\x4' }}
{{ ) }}
{{ (1] }}
a {% if true -%}   b   {%- endif %} c
{{ 1 -}}  x  {{- 2 }}
{{- '  keep  ' -}}
   {% if true %}   indented   {% endif %}   tail
{% if true +%}  nl{% endif %}
{%+ if true %}plus{%+ endif %}
x {%- if true %} y{% endif -%} z
{{ "a" }}{{ '{{' }}{{ "}}" }} {{ {'a': {}} }} {{ '%}' }}
{{ d.keys()|list }} {{ d.values()|list }} {{ d.get('zz', 3) }} {{ d.copy() }} {{ d.items()|list|length }}
{{ d.pop('b') }}
{{ d.setdefault('q', 1) }}
{{ l.index(2) }} {{ l.count(1) }} {{ (1,2,1).count(1) }} {{ (1,2).index(2) }}
{{ l.index(99) }}
{{ s.index('W') }} {{ s.rindex('o') }} {{ s.find('zz') }}
{{ s.index('zz') }}
{{ s.split('o', 1) }} {{ s.rsplit('o', maxsplit=1) }} {{ 'a  b'.split(' ') }} {{ ' a  b '.split() }} {{ s.split('l', -1) }} {{ s.split(none, 1) }}
{{ s.startswith(('H', 'x')) }} {{ s.endswith('d', 3) }} {{ s.startswith('W', 6, 8) }}
{{ s.count('l') }} {{ s.count('') }} {{ s.center(21, '*') }} {{ s.ljust(13, '.') }}| {{ s.rjust(13) }}
{{ s.join(['a', 'b']) }} {{ ','.join(d) }} {{ '-'.join('abc') }}
{{ 'a\nb\r\nc\x0bd\u2028e'.splitlines() }} {{ 'a\n'.splitlines(true) }}
{{ '%s|%r|%d|%5.2f|%-5s|%05d|%x|%%' % ('a', 'b', 3, 2.5, 'x', 42, 255) }}
{{ '%s' % d }} {{ '%s %s' % ('a', none) }} {{ '%(a)s' % {'a': 1} }}
{{ '%d' % 'a' }}
{{ 'a'|format }} {{ '%s-%s'|format('a', 1) }}
{{ range(10)[2:5] }} {{ range(5)|list }} {{ range(5, 0, -2)|list }} {{ range(3)[1] }} {{ 2 in range(3) }}
{{ range(3) }}
{{ d|tojson(indent=4) }} {{ [1,[2,{'a':[]}]]|tojson(indent=2) }} {{ d|tojson(2) }}
{{ d|tojson(false, 2) }} {{ d|tojson(true) }} {{ {'b':{'d':1,'c':2},'a':3}|tojson(indent=2, sort_keys=true) }}
{{ {'é': '\u2028'}|tojson }} {{ '😀'|tojson(ensure_ascii=true) }} {{ '\x7f\x80\x9f'|tojson }}
{{ [1.0, 1e16, 1e-5, 0.1, 123456789012345680.0, -0.0]|tojson }}
{{ (1,2)|tojson }} {{ range(3)|list|tojson }} {{ [true,none]|tojson(separators=[',',':']) }}
{{ ('a'|safe)|tojson }} {{ '<a>'|e }} {{ '<a>'|escape }} {{ ('<a>'|safe)|e }} {{ '<a>'|forceescape }}
{{ l|slice(2)|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }}
{% for i in l %}{{ loop.cycle('x', 'y') }}{{ loop.index }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth0 }}{{ loop.changed(i) }}{% endfor %}
{% for k, v in d.items() recursive %}{{ k }}{% if v is mapping %}[{{ loop(v.items()) }}]{% endif %}{{ loop.depth }}{% endfor %}
{% for a in l if a > 1 recursive %}{{ a }}{{ loop.length }}{% endfor %}
{% macro m(a, b=2, *args) %}{% endmacro %}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m() }}{{ m(b=2) }}
{% macro m() %}{{ caller() if caller else 'none' }}{% endmacro %}{{ m() }}{% call m() %}x{% endcall %}
{% macro outer() %}{% macro inner(x) %}<{{ x }}>{% endmacro %}{{ inner(1) }}{% endmacro %}{{ outer() }}
{% macro m(x) %}{{ x }}{% if x > 0 %}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(3) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, 2) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(y=2) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, x=2) }}
{% macro m(x) %} {{ x }} {% endmacro %}{{ m(1)|trim ~ '|' }}{{ m(1) is string }}{{ m(1)|length }}{{ (m(1) + 'x') }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}{{ ns.c is defined }}{% set ns.c = 3 %}{{ ns.c }}
{% set ns = namespace(a=1) %}{{ ns }}
{% set ns = namespace(a=[]) %}{% for i in l %}{% set ns.a = ns.a + [i] %}{% endfor %}{{ ns.a }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }}
{% set x | upper %}abc{% endset %}{{ x }}{% set y | replace('a','b') | trim %} a {% endset %}{{ y }}
{% for x in [[1,[2,3]],[4,[5,6]]] %}{% set a, b = x %}{{ a }}{{ b }}{% endfor %}{% for a, (b, c) in [[1,[2,3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% elif i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in x %}a{% else %}b{% endfor %} {% for i in n or [] %}a{% else %}c{% endfor %}
{% for i in n %}a{% endfor %}
{% for c in 'aé😀' %}{{ c }},{% endfor %} {% for k in d %}{{ k }},{% endfor %}
{{ l[0:2:1] }} {{ l[::2] }} {{ u[::-1] }} {{ l[-1:] }} {{ 'abc'[1:][0] }} {{ l[:-1][::-1] }} {{ d['a'][1:3] }}
{{ messages[::-1] is defined }} {{ l[1.0] }}|{{ l['0'] }}|{{ l[true] }}
{{ users|map(attribute='name')|map('upper')|join(' ') }} {{ users|selectattr('age', 'gt', 26)|list|length }} {{ users|sum(attribute='age') }} {{ users|sort(attribute='age,name')|map(attribute='name')|list }}
{{ users|sort(attribute='name', reverse=true)|map(attribute='name')|list }} {{ ['b','A','c']|sort }} {{ ['b','A','c']|sort(case_sensitive=true) }} {{ d|dictsort }}
{{ [3,1,2]|max }} {{ ['a','B']|min }} {{ []|max }} {{ users|max(attribute='age') }}
{{ 'ab cd'|wordcount }} {{ 'hello world foo'|truncate(9) }} {{ 'hello world foo'|truncate(9, true, '..') }} {{ 'abc'|center(9) }}|
{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb\n\nc'|indent(2, true, true) }}|{{ 'a\nb'|indent('>> ') }}
{{ 3.7|int }} {{ '12'|int }} {{ 'x'|int(5) }} {{ '0x1f'|int(0, 16) }} {{ '3.9'|int }} {{ '1e3'|float }} {{ 2.345|round(2) }} {{ 2.5|round }} {{ 3.2|round(0, 'ceil') }} {{ 42|round(-1) }} {{ -5|abs }}
{{ 1 if x is defined and x.y is defined else 'no' }} {{ x.y.z is defined }}
{{ d.n is mapping and d.n.m is string }} {{ 'a' is in(['a']) }} {{ l is not string and l is iterable }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %j %a %A %b %B %d %e %p %I %y %U %w %Z %%') }}
{{ strftime_now() }}
{{ raise_exception('a: b: c') }}
{{ raise_exception(d) }}
{{ raise_exception() }}
{{ raise_exception('a', 'b') }}
{{ raise_exception(message='named') }}
{% generation %}{{ s }}{% endgeneration %}{% generation -%} a {%- endgeneration %}
{%- if true -%} a {%- else -%} b {%- endif -%} c
{% do l %}
{% include 'x' ignore missing %}
{% import 'x' as y %}
{{ loop }}
{{ 7 // 2.0 }} {{ 1e308 * 10 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 0.5 }} {{ 1 / 3 }}
{{ 'a' 'b' ~ 'c' }} {{ 'a' * 2 ~ 'b' }} {{ -1 ** 2 }} {{ not 1 == 2 }} {{ 1 < 2 == true }} {{ 1 in [1] == true }}
{{ d.__class__ }}
{{ ''['__class__'] }}
{{ l|first.a }}|{{ (l|first).a }}
{{ l | map('int') | sum }} {{ ['1','2']|map('int')|sum }} {{ [[1,2],[3]]|sum(start=[]) }}
{{ (users|first)['name'] }} {{ users[0]['name'][0]|upper }} {{ users|last|attr('name') }}
{{ d|items|list }} {{ d|length }} {{ d|list|last }} {{ d.items()|first }} {{ d.items() }} {{ d.keys() }} {{ d.values() }}
{{ [1,2]|unique|list }} {{ ['a','A','b']|unique|list }} {{ [1,1.0,true]|unique|list }} {{ 'aab'|unique|join }}
{{ s|attr('upper')() }} {{ d|attr('items')()|list }}
{{ [1,2,3].__len__() }}
{{ 'é' < 'z' }} {{ 'a' < 'B' }} {{ [1,'a'] == [1,'a'] }} {{ {'a':1} != {'a':2} }} {{ (1,2) < (1,3) }}
{{ x|default(y) is defined }} {{ x|default('a')|upper }} {{ n|default('a', true) }} {{ ''|default('a', boolean=True) }} {{ false|default('a', true) }}
{{ (s|list)[:3]|join('+') }} {{ s|reverse }} {{ l|reverse|list }} {{ s|replace('o', '0')|lower|title }}
{{ "a" if l else "b" if n else "c" }} {{ (1, 2)[0] }} {{ {'a': 1}['a'] }} {{ [1, 2,] }} {{ {'a': 1,} }} {{ (1,) }} {{ 1, 2 }}
{{ l.0 }} {{ l.2 }} {{ users.0.name }} {{ d['a']['4'] is defined }}
{{ m.x if m is defined }}|{{ none ~ '' }}|{{ none|string }}|{{ true|string }}|{{ 1.0|string }}|{{ [none]|string }}
{{ true + 1 }} {{ true & false }}
{{ 5 is divisibleby 0 }}
{{ s|tojson|safe }} {{ s|string|tojson }} {{ d|string }} {{ d|string|length }} {{ 'a"b'|tojson|tojson }}
{{ {'a': x}|tojson }}
{{ 1_0 + 0x_f }} {{ 1__0 }}
{{ 1.e5 }}
{{ .5 }}
{{ 00 }} {{ 01 }}
{# a #}{{ 1 }}{#- b -#} {{ 2 }} {% raw %}{{ a }}{% endraw %}{%- raw +%} x {% endraw -%}  y
{% if x is defined %}a{% elif s == 'Hello World' %}b{% else %}c{% endif %}
{% with a=1, b=a %}{{ b }}{% endwith %}
{% if true %}{% set q = 1 %}{% endif %}{{ q }} {% for i in l %}{% set q = i %}{% endfor %}{{ q }}
{{ 42|round(-1) }} {{ 45|round(-1) }} {{ 55|round(-1) }} {{ -45|round(-1) }} {{ -55|round(-1) }} {{ 1250|round(-2) }} {{ 0|round(-3) }} {{ 7|round(-1) }} {{ 7|round(-5) }} {{ 499999999999999999|round(-18) }} {{ 4999999999999999999|round(-19) }} {{ 5|round(-25) }}
{{ s.index('W') }} {{ s.rindex('o') }} {{ s.index('o', 5) }} {{ u.index('😀') }}
{{ s.rindex('zz') }}
{{ '<a href="x">\'&'|e }} {{ ('<a>'|safe)|e }} {{ '<a>'|forceescape }} {{ ('<a>'|safe)|forceescape }} {{ 5|e }} {{ none|e }} {{ x|e }} {{ l|e }} {{ ('<'|e) ~ '<' }} {{ '<'|e is escaped }} {{ ['<']|map('e')|join }}
{{ 'a b/c?é&=😀~-_.'|urlencode }} {{ 5|urlencode }} {{ 2.5|urlencode }}
{{ l|slice(2)|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }} {{ []|slice(2)|list }} {{ [1]|slice(3, 0)|list }} {{ 'abcd'|slice(2)|map('join')|list }}
{{ strftime_now('%w %u %U %W [%Z] [%z]') }} {{ strftime_now('%-w|%-U') }}
{{ d.keys() == d.keys() }} {{ d.items() == d.items() }} {{ d.values() == d.values() }} {{ d.keys() == {'b': 1}.keys() }} {{ {'a': 1, 'b': 2}.keys() == {'b': 3, 'a': 4}.keys() }} {{ {'a': 1, 'b': 2}.items() == {'b': 2, 'a': 1}.items() }} {{ {}.keys() == {}.items() }} {{ d.keys() != d.keys() }} {{ d.keys() == d|list }}
"""

MULTILINE = [
    "line1\n{% if true %}\n  body\n{% endif %}\nline2\n",
    "a\n    {% if true %}\n    b\n    {% endif %}\nc\n\n",
    "a\n    {{ 1 }}\n    {%- if true -%}\n    b\n    {%- endif -%}\nc",
    "a\r\nb\rc\n{% if true %}\r\nx{% endif %}\r\n",
    "{# c #}\n\n{#- c -#}\n x\n  {# c +#}\n y",
    "  {#c#}  {% if true %}x{% endif %}  \n  {{ 1 }}  \n",
    "\n\n{% for i in [1,2] %}\n\n  {{ i }}\n{% endfor %}\n\n",
    "{% raw %}\n  a\n{% endraw %}\nb\n  {% raw %}c{% endraw %}  \nd",
    "{% set x %}\n  a\n{% endset %}\n[{{ x }}]",
    "x\n  {%+ if true %}\n  y\n  {%+ endif +%}\nz",
    "\t \u00a0{% if true %}x{% endif %}\u3000{%- if true %}y{% endif %}",
    "{{ 1 -}}\n\n\n{% if true %} a {% endif %}\n\n{{- 2 }}",
    "a{% for i in range(3) -%}\n   {{ i }},\n{%- endfor %}b",
    "text {{ 'multi\nline' }} {{ \"a\r\nb\" }}\n",
    "{% if true %}\n\n{% endif %}",
    "{{ 1 }}\n",
    "\n",
    "",
    "{% macro m() %}\n  x\n{% endmacro %}\n{{ m() }}\n{{ m()|trim }}",
]

# Refused on purpose, with a message that names the construct, though the reference renders (or fails at) them.
UNSUPPORTED = [
    "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}",
    "a\n {% block b %}{% endblock %}", "{% autoescape true %}{% endautoescape %}", "{% print 1 %}",
    "{{ {'a': 1}|urlencode }}", "{{ [1]|random }}", "{{ [1]|groupby('a') }}",
    "{{ 'a b'|wordwrap(2) }}", "{{ 1|filesizeformat }}", "{{ {}|xmlattr }}", "{{ 1|pprint }}",
    "{{ cycler(1, 2) }}", "{{ joiner() }}", "{{ lipsum() }}", "{{ [1]|map('upper') }}", "{{ range }}", "{{ 'a'.encode() }}",
    "{{ 'a'.casefold() }}", "{{ 9223372036854775808 }}", "{{ (5).bit_length() }}", "{{ '\\N{DASH}' }}", "{{ é }}",
    "{{ (-8) ** 0.5 }}", "{{ '{:>5}'.format(1) }}", "{{ [1, 2][0:1, 0:1] }}", "{{ strftime_now('%Q') }}",
]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--gguf")
    ap.add_argument("--shared")
    args = ap.parse_args()
    cases = []

    def add(name, template, variables):
        text, reason = render(template, variables)
        case = {"name": name, "template": template, "vars": variables}
        case.update({"error": reason} if text is None else {"expected": text})
        cases.append(case)

    chats = list(CHAT_TEMPLATES)
    if args.gguf:
        import gguf
        chats.insert(0, gguf.GGUFReader(args.gguf).fields["tokenizer.chat_template"].contents())
    for i, template in enumerate(chats):
        for name, variables in CONVERSATIONS.items():
            add(f"chat{i}-{name}", template, {**TOKENS, **variables})
    for i, line in enumerate(SNIPPETS.strip("\n").split("\n")):
        add(f"snippet{i}", line, D)
    for i, template in enumerate(MULTILINE):
        add(f"layout{i}", template, D)
    shared = []
    for path in sorted(glob.glob(os.path.join(args.shared, "*.jinja"))) if args.shared else []:
        entry = {"file": os.path.basename(path), "renders": {}}
        with open(path, encoding="utf-8", newline="") as f:
            template = f.read()
        for name, variables in CONVERSATIONS.items():
            text, reason = render(template, {**TOKENS, **variables})
            data = None if text is None else text.encode()
            entry["renders"][name] = {"error": reason} if data is None else {"fnv1a": fnv1a(data), "bytes": len(data)}
        shared.append(entry)
    out = {"made_by": "tools/template_golden.py", "jinja2": jinja2.__version__, "now_unix": NOW, "tokens": TOKENS,
           "conversations": CONVERSATIONS, "cases": cases, "unsupported": UNSUPPORTED, "shared": shared}
    print(json.dumps(out, ensure_ascii=True, indent=1))


if __name__ == "__main__":
    main()
