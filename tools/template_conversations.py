#!/usr/bin/env python3
"""Renders conversations with chat templates by the reference implementation.

usage: tools/template_conversations.py [--templates DIR] > FILE

Without --templates: the project's own templates (tests/text/golden/conversations.json). With it: every DIR/*.jinja.
FILE holds each template's source and, for each conversation, the text, or what the template raised, or the error that
the language gave. test-text-jinja-golden compares a FILE: `conversations FILE`.
Needs jinja2 >= 3.1.6, set up as the Transformers library does it.
"""
import argparse
import glob
import json
import os
import sys

try:
    import jinja2
except ImportError:
    sys.exit("template_conversations.py needs jinja2: python3 -m pip install jinja2")

from template_golden import CALL, CHAT_TEMPLATES, NOW, TOKENS, TOOL, environment

SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Searches \"everything\" <here> & there\nsecond line", "parameters": {
        "type": "object", "required": ["query", "limits"], "properties": {
            "query": {"type": "string", "description": "Words; ünïcödé → 你好"},
            "limits": {"type": "object", "description": "Nested", "properties": {
                "n": {"type": "integer", "minimum": 1, "default": 10}, "ratio": {"type": "number", "default": 0.5}},
                       "required": ["n"]},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "nullable": True},
            "either": {"type": ["string", "null"]}, "any": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}},
    "return": {"type": "object", "description": "hits"}}}
PLAIN = {"type": "function", "function": {"name": "now", "description": "The time",
                                          "parameters": {"type": "object", "properties": {}}}}
NO_PARAMETERS = {"type": "function", "function": {"name": "ping", "description": "Is it there?"}}


def call(name, arguments, ident="call00001"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def result(text, ident="call00001", **more):
    return {"role": "tool", "tool_call_id": ident, "content": text, **more}


SYSTEM = {"role": "system", "content": "Be brief.\n"}
ARGUMENTS = {"query": "x \"y\" <z> & 'q'\n", "limits": {"n": 3, "ratio": 1.0}, "tags": ["a", "b"], "either": None, "any": True}
CALLED = [SYSTEM, user("Find it"), assistant("", tool_calls=[call("search", ARGUMENTS)]),
          result("{\"hits\": [1, 2.5, null]}", name="search"), assistant("Found."), user("Thanks")]

# Each is rendered with add_generation_prompt true, false and not given.
CONVERSATIONS = {
    "user": {"messages": [user("Hello")]},
    "system": {"messages": [SYSTEM, user("Hello")]},
    "turns": {"messages": [user(" 1+1? "), assistant(" 2\n"), user("Sure?"), assistant("Yes."), user("Why?")]},
    "system turns": {"messages": [SYSTEM, user("1+1?"), assistant("2"), user("Sure?"), assistant("Yes.")]},
    "developer": {"messages": [{"role": "developer", "content": "Only verse."}, user("Hello")]},
    "unicode": {"messages": [{"role": "system", "content": "Ünïcödé \u00a0\u3000"},
                             user("\u2028 你好 😀 e\u0301 \u200d ﬁ İ ß\t\u00a0"), assistant("здравствуй"), user("\"\\/<>&'")]},
    "control tokens": {"messages": [user("<|im_end|>\n<|im_start|>system\n</s>[/INST]<|eot_id|>{{ 1 }}{% if %}"),
                                    assistant("<think>"), user("</think>")]},
    "parts": {"messages": [user([{"type": "text", "text": "one "}, {"type": "text", "text": " two"}]),
                           assistant([{"type": "text", "text": "three"}]), user([{"type": "text", "text": ""}])]},
    "picture": {"messages": [user([{"type": "image"}, {"type": "text", "text": "What is it?"}])]},
    "null content": {"messages": [user("Go"), assistant(None), user("On")]},
    "null call": {"messages": [user("Time?"), assistant(None, tool_calls=[call("now", {})]), result("12:00")],
                  "tools": [PLAIN]},
    "no content": {"messages": [user("Time?"), {"role": "assistant", "tool_calls": [call("now", {})]}, result("12:00")],
                   "tools": [PLAIN]},
    "no role": {"messages": [{"content": "Hello"}]},
    "no text": {"messages": [{"role": "user"}]},
    "nobody": {"messages": []},
    "nothing": {},
    "unknown role": {"messages": [user("a"), {"role": "critic", "content": "b"}]},
    "twice the user": {"messages": [user("a"), user("b"), assistant("c"), assistant("d")]},
    "assistant first": {"messages": [assistant("Welcome"), user("Hello")]},
    "late system": {"messages": [user("Hello"), SYSTEM, assistant("Hi"), SYSTEM, user("Go")]},
    "tools": {"messages": [user("Find it")], "tools": [SEARCH, PLAIN]},
    "system tools": {"messages": [SYSTEM, user("Find it")], "tools": [SEARCH, NO_PARAMETERS]},
    "no tools": {"messages": [SYSTEM, user("Find it")], "tools": []},
    "null tools": {"messages": [SYSTEM, user("Find it")], "tools": None},
    "weather": {"messages": [SYSTEM, user("Weather?")], "tools": [TOOL, PLAIN]},
    "weather called": {"messages": [user("Weather?"), assistant("", tool_calls=[CALL], reasoning_content="I call."),
                                    result("{\"t\": 21.5}", name="get_weather")], "tools": [TOOL]},
    "weather told": {"messages": [SYSTEM, user("Weather?"), assistant(None, tool_calls=[CALL]), result("sun"),
                                  assistant("Sun."), user("Tomorrow?"), assistant("", tool_calls=[CALL, CALL]),
                                  result("rain"), result("wind"), assistant("Rain.")], "tools": [TOOL, PLAIN]},
    "called": {"messages": CALLED, "tools": [SEARCH, PLAIN]},
    "called, open": {"messages": CALLED[:4], "tools": [SEARCH, PLAIN]},
    "called without tools": {"messages": CALLED},
    "called by text": {"messages": [user("Find it"), assistant("", tool_calls=[call("search", json.dumps(ARGUMENTS))]),
                                    result("none")], "tools": [SEARCH]},
    "two calls": {"messages": [user("Both"), assistant("Now.", tool_calls=[call("now", {}, "call00001"),
                                                                           call("search", ARGUMENTS, "call00002")]),
                               result("12:00", "call00001", name="now"), result("[]", "call00002", name="search"),
                               assistant("So."), user("And?")], "tools": [PLAIN, SEARCH]},
    "calls in a row": {"messages": [user("Go"), assistant("", tool_calls=[call("now", {}, "aaaaaaaa1")], reasoning_content="r1"),
                                    result("1", "aaaaaaaa1"),
                                    assistant("", tool_calls=[call("now", {}, "aaaaaaaa2")], reasoning_content="r2\n"),
                                    result("2", "aaaaaaaa2")], "tools": [PLAIN]},
    "short call": {"messages": [user("Go"), assistant("", tool_calls=[{"name": "now", "arguments": {}}]), result("1")],
                   "tools": [PLAIN]},
    "structured result": {"messages": [user("Go"), assistant("", tool_calls=[call("now", {"zone": "Zürich", "h": [1, {"a": -0.0}]})]),
                                       result({"time": "12:00", "ok": True, "é": 1e-7})], "tools": [PLAIN]},
    "result in parts": {"messages": [user("Go"), assistant("", tool_calls=[call("now", {})]),
                                     result([{"type": "text", "text": "12"}, {"type": "text", "text": ":00"}])],
                        "tools": [PLAIN]},
    "result alone": {"messages": [user("Go"), result("12:00"), user("Well?")]},
    "reasoning": {"messages": [user("q"), assistant("a", reasoning_content="\nfirst, second\n"), user("more"),
                               assistant("b", reasoning_content="third")]},
    "reasoning, thinking on": {"messages": [SYSTEM, user("q"), assistant("a", reasoning_content="why"), user("more")],
                               "enable_thinking": True, "thinking": True},
    "reasoning, thinking off": {"messages": [user("q"), assistant("a", reasoning_content="why"), user("more")],
                                "enable_thinking": False, "thinking": False},
    "reasoning in the text": {"messages": [user("q"), assistant("<think>\nwhy\n</think>\n\na"), user("more"),
                                           assistant("<think>not ended"), user("x</think>y"), assistant("p</think>q")]},
    "reasoning by other names": {"messages": [user("q"), assistant("a", thinking="t", reasoning="r"), user("more")],
                                 "reasoning_effort": "high", "clear_thinking": False, "keep_tool_result": True},
    "empty reasoning": {"messages": [user("q"), assistant("a", reasoning_content=""), user("more"),
                                     assistant("b", reasoning_content=None)]},
    "options": {"messages": [SYSTEM, user("q")], "tools": [PLAIN], "date_string": "01 Jan 2030", "tools_in_user_message": False,
                "model_identity": "You are nobody.", "reasoning_effort": "low", "thinking_budget": 512, "documents": [
                    {"title": "T", "text": "Text"}], "controls": {"length": "short"}, "builtin_tools": ["python"]},
    "odd values": {"messages": [user(12), assistant(2.5), user(True), assistant({"a": 1})]},
    "empty texts": {"messages": [{"role": "system", "content": ""}, user(""), assistant(""), user("  \n ")]},
    "prefill": {"messages": [user("Count"), assistant("1, 2,")], "continue_final_message": True},
}


def compiled(source):
    env = environment()
    env.globals["namespace"] = jinja2.utils.Namespace
    return env.from_string(source)


def expected(template, variables):
    try:
        return {"text": template.render(**json.loads(json.dumps(variables)))}
    except Exception as e:  # any failure of the reference is the expected outcome
        raised = type(e) is jinja2.exceptions.TemplateError
        return {"raised": str(e)} if raised else {"error": type(e).__name__, "message": str(e)}


def conversations():
    for name, variables in CONVERSATIONS.items():
        yield name, variables
        yield name + " +", {**variables, "add_generation_prompt": True}
        yield name + " -", {**variables, "add_generation_prompt": False}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--templates", help="a folder of *.jinja")
    args = ap.parse_args()
    sources = {f"own {i}": source for i, source in enumerate(CHAT_TEMPLATES)}
    if args.templates:
        sources = {}
        for path in sorted(glob.glob(os.path.join(args.templates, "*.jinja"))):
            with open(path, encoding="utf-8", newline="") as f:
                sources[os.path.basename(path)] = f.read()
    talks = dict(conversations())
    templates = []
    for name, source in sources.items():
        template = compiled(source)
        templates.append({"name": name, "source": source, "renders": {
            talk: expected(template, {**TOKENS, **variables}) for talk, variables in talks.items()}})
    json.dump({"made_by": "tools/template_conversations.py", "jinja2": jinja2.__version__, "now_unix": NOW,
               "tokens": TOKENS, "conversations": talks, "templates": templates}, sys.stdout, ensure_ascii=True, indent=0)
    print()


if __name__ == "__main__":
    main()
