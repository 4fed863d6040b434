#!/usr/bin/env python3
"""The official `openai` package, unchanged, against a real `sennit serve`.

    openai_client.py SENNIT (MODEL.gguf | --tiny TINY-MODEL-PROGRAM) [unittest arguments]

The client checks every answer strictly against its own types. With a real model, answers are also checked for sense;
the tiny one is random weights and is asked the same things. Where two requests must give the same text (streamed or
whole, alone or among sixteen, as text or as token ids), they are compared by equality: the engine is exact."""
import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_LOG"):
    os.environ.pop(name, None)

import openai  # noqa: E402
from openai import AsyncOpenAI, OpenAI  # noqa: E402

KEY = "sk-" + "k" * 32
START_S = 60
FRANCE = [{"role": "user", "content": "What is the capital of France? Answer briefly."}]
LONG = {"ignore_eos": True}  # in extra_body: an extension, so that an answer has as many tokens as it may


class Server:
    """A server for this program: a port that the system chose, a key, a folder that is removed."""

    def __init__(self, *options):
        self.folder = tempfile.TemporaryDirectory(prefix="sennit-openai-")
        place = pathlib.Path(self.folder.name)
        (place / "keys").write_text(f"# for the test\n{KEY}\n")
        (place / "keys").chmod(0o600)
        self.log = place / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [SENNIT, "serve", "-m", MODEL, "--port", "0", "--port-file", place / "port", "--api-key-file",
                 place / "keys", "--alias", "the-model", *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        limit = time.monotonic() + START_S
        while not (place / "port").exists() or not (place / "port").read_text().endswith("\n"):
            if self.process.poll() is not None or time.monotonic() > limit:
                raise SystemExit(f"the server does not start:\n{self.log.read_text(errors='replace')}")
            time.sleep(0.02)
        self.root = f"http://127.0.0.1:{int((place / 'port').read_text())}"

    def client(self, kind=OpenAI, **kw):
        kw = {"api_key": KEY, "base_url": self.root + "/v1", "max_retries": 0, "timeout": 60,
              "_strict_response_validation": True} | kw
        return kind(**kw)

    def metric(self, name):
        request = urllib.request.Request(self.root + "/metrics", headers={"Authorization": f"Bearer {KEY}"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as reply:
            for line in reply.read().decode().splitlines():
                if line.startswith(name + " "):
                    return float(line.split()[1])
        raise AssertionError(f"no metric {name}")

    def wait_for(self, name, value, seconds):
        limit = time.monotonic() + seconds
        while (now := self.metric(name)) != value:
            if time.monotonic() > limit:
                return f"{name} is {now}, not {value}, after {seconds} s"
            time.sleep(0.005)
        return ""

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        text = self.log.read_text(errors="replace")
        self.folder.cleanup()
        if code != 0:
            raise SystemExit(f"the server left with {code}:\n{text[-4000:]}")


class Case(unittest.TestCase):
    server = None  # one for all cases that do not need their own

    @classmethod
    def setUpClass(cls):
        if Case.server is None:
            Case.server = Server("--max-rows", "16", "--queue", "64")
        cls.client = Case.server.client()
        # The types for completions know neither a chunk that does not end its choice nor the first token of a prompt,
        # which has no probability: what every server sends, the client takes unless it is told to be strict.
        cls.lenient = Case.server.client(_strict_response_validation=False)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.lenient.close()

    def setUp(self):
        self.started = time.monotonic()

    def tearDown(self):
        """Whatever a test did, nothing of it stays."""
        print(f"{time.monotonic() - self.started:.1f} s ", end="", file=sys.stderr)
        self.assertEqual(Case.server.wait_for("sennit_rows_running", 0, 5), "")

    def chat(self, messages=FRANCE, **kw):
        kw = {"model": "the-model", "messages": messages, "temperature": 0, "max_completion_tokens": 24} | kw
        return self.client.chat.completions.create(**kw)

    def complete(self, prompt, **kw):
        kw = {"model": "the-model", "prompt": prompt, "temperature": 0, "max_tokens": 12} | kw
        lenient = kw.get("stream") or (kw.get("echo") and "logprobs" in kw)
        return (self.lenient if lenient else self.client).completions.create(**kw)

    def refused(self, kind, **kw):
        with self.assertRaises(kind) as caught:
            self.chat(**kw)
        self.assertTrue(caught.exception.body["message"])
        return caught.exception


class Chat(Case):
    def test_whole(self):
        answer = self.chat()
        self.assertEqual((answer.object, answer.model, len(answer.choices)), ("chat.completion", "the-model", 1))
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertLess(abs(answer.created - time.time()), 60)
        choice = answer.choices[0]
        self.assertEqual((choice.index, choice.message.role), (0, "assistant"))
        self.assertIn(choice.finish_reason, ("stop", "length"))
        usage = answer.usage
        self.assertGreater(usage.prompt_tokens, 10)
        self.assertTrue(0 < usage.completion_tokens <= 24)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        if not TINY:
            self.assertIn("Paris", choice.message.content)
            self.assertEqual(choice.finish_reason, "stop")

    def test_ids_differ(self):
        a, b = self.chat(), self.chat()
        self.assertNotEqual(a.id, b.id)
        self.assertEqual(a.system_fingerprint, b.system_fingerprint)
        self.assertEqual(a.choices[0].message.content, b.choices[0].message.content)

    def test_stream(self):
        chunks = list(self.chat(stream=True))
        self.assertEqual({c.object for c in chunks}, {"chat.completion.chunk"})
        self.assertEqual(len({(c.id, c.created, c.model) for c in chunks}), 1)
        self.assertTrue(all(c.usage is None for c in chunks))
        choices = [c.choices[0] for c in chunks]
        self.assertEqual(choices[0].delta.role, "assistant")
        self.assertEqual([c.finish_reason for c in choices[:-1]], [None] * (len(choices) - 1))
        whole = self.chat().choices[0]
        self.assertEqual("".join(c.delta.content or "" for c in choices), whole.message.content)
        self.assertEqual(choices[-1].finish_reason, whole.finish_reason)

    def test_stream_usage(self):
        *chunks, last = self.chat(stream=True, stream_options={"include_usage": True})
        self.assertTrue(all(c.usage is None and len(c.choices) == 1 for c in chunks))
        self.assertEqual((last.choices, last.usage), ([], self.chat().usage))

    def test_stream_helper(self):
        text, expected = "", self.chat().choices[0].message.content
        stop = expected[len(expected) // 2:][:3]  # the helper refuses an answer that was cut by its length
        with self.client.chat.completions.stream(model="the-model", messages=FRANCE, temperature=0, stop=stop,
                                                 max_completion_tokens=24) as stream:
            for event in stream:
                if event.type == "content.delta":
                    text += event.delta
            final = stream.get_final_completion().choices[0]
        expected = expected[:expected.index(stop)]
        self.assertEqual((text, final.message.content, final.finish_reason), (expected, expected, "stop"))

    def test_stream_several(self):
        texts = {}
        for chunk in self.chat(stream=True, n=3, temperature=1, seed=5):
            choice = chunk.choices[0]
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
        whole = self.chat(n=3, temperature=1, seed=5)
        self.assertEqual([texts[i] for i in range(3)], [c.message.content for c in whole.choices])

    def test_several_and_seed(self):
        a, b = (self.chat(n=4, temperature=1, seed=77) for _ in range(2))
        texts = [c.message.content for c in a.choices]
        self.assertEqual([c.index for c in a.choices], [0, 1, 2, 3])
        self.assertEqual(texts, [c.message.content for c in b.choices])
        self.assertGreater(len(set(texts)), 1)
        self.assertNotEqual(texts, [c.message.content for c in self.chat(n=4, temperature=1, seed=78).choices])
        self.assertEqual(a.usage.prompt_tokens, self.chat().usage.prompt_tokens)

    def test_stop(self):
        text = self.chat().choices[0].message.content
        word = text[len(text) // 2:len(text) // 2 + 3]
        choice = self.chat(stop=["no such text", word]).choices[0]
        self.assertEqual((choice.message.content, choice.finish_reason), (text[:text.index(word)], "stop"))
        chunks = self.chat(stop=word, stream=True)
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks), text[:text.index(word)])

    def test_length(self):
        for limit in ({"max_completion_tokens": 3}, {"max_completion_tokens": openai.NOT_GIVEN, "max_tokens": 3}):
            answer = self.chat(**limit, extra_body=LONG)
            self.assertEqual((answer.choices[0].finish_reason, answer.usage.completion_tokens), ("length", 3))

    def test_logprobs(self):
        answer = self.chat(logprobs=True, top_logprobs=3)
        entries = answer.choices[0].logprobs.content
        self.assertEqual(answer.usage.completion_tokens, len(entries))
        for entry in entries:
            self.assertEqual(len(entry.top_logprobs), 3)
            values = [t.logprob for t in entry.top_logprobs]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertEqual((entry.token, entry.logprob), (entry.top_logprobs[0].token, values[0]))
            self.assertLessEqual(values[0], 0)
        # The token that ends an answer is counted and reported, and is not shown.
        shown = entries[:-1] if answer.choices[0].finish_reason == "stop" else entries
        joined = b"".join(bytes(e.bytes) for e in shown)
        self.assertEqual(joined.decode(errors="replace"), answer.choices[0].message.content)
        streamed = [e for c in self.chat(logprobs=True, top_logprobs=3, stream=True)
                    if c.choices[0].logprobs for e in c.choices[0].logprobs.content]
        self.assertEqual(streamed, entries)

    def test_logit_bias(self):
        forced = self.chat(logit_bias={"77": 100}, logprobs=True, max_completion_tokens=4, extra_body=LONG)
        tokens = {e.token for e in forced.choices[0].logprobs.content}
        self.assertEqual(len(tokens), 1)
        plain = self.chat(logprobs=True, max_completion_tokens=4, extra_body=LONG)
        self.assertNotEqual(tokens, {e.token for e in plain.choices[0].logprobs.content})

    def test_penalties_and_sampling(self):
        answer = self.chat(temperature=0.7, top_p=0.9, presence_penalty=0.5, frequency_penalty=0.5, seed=1)
        self.assertTrue(answer.choices[0].finish_reason)

    def test_developer_role(self):
        texts = [self.chat([{"role": role, "content": "You answer in one word."}, *FRANCE])
                 for role in ("developer", "system")]
        self.assertEqual(texts[0].choices[0].message.content, texts[1].choices[0].message.content)
        self.assertEqual(texts[0].usage, texts[1].usage)

    def test_conversation(self):
        answer = self.chat()
        messages = [*FRANCE, answer.choices[0].message, {"role": "user", "content": "And of Italy?"}]
        self.assertGreater(self.chat(messages).usage.prompt_tokens, answer.usage.prompt_tokens)

    def test_content_parts(self):
        text = FRANCE[0]["content"]
        parts = [{"type": "text", "text": part} for part in (text[:7], text[7:])]
        a, b = self.chat(), self.chat([{"role": "user", "content": parts}])
        self.assertEqual((a.choices[0].message, a.usage), (b.choices[0].message, b.usage))
        image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
        error = self.refused(openai.BadRequestError, messages=[{"role": "user", "content": image}])
        self.assertTrue(error.param.startswith("messages[0].content"), error.param)

    def test_raw_response(self):
        raw = self.client.chat.completions.with_raw_response.create(
            model="the-model", messages=FRANCE, temperature=0, max_completion_tokens=8)
        self.assertEqual(raw.headers["content-type"].split(";")[0], "application/json")
        self.assertTrue(raw.headers["x-request-id"])
        self.assertEqual(raw.parse().object, "chat.completion")
        with self.client.chat.completions.with_streaming_response.create(
                model="the-model", messages=FRANCE, temperature=0, max_completion_tokens=8, stream=True) as raw:
            self.assertEqual(raw.headers["content-type"].split(";")[0], "text/event-stream")
            lines = [line for line in raw.iter_lines() if line.startswith("data:")]
        self.assertEqual(lines[-1], "data: [DONE]")


class Completions(Case):
    def test_whole_and_stream(self):
        answer = self.complete("The capital of France is")
        self.assertEqual((answer.object, answer.model), ("text_completion", "the-model"))
        self.assertTrue(answer.id.startswith("cmpl-"))
        *chunks, last = self.complete("The capital of France is", stream=True, stream_options={"include_usage": True})
        self.assertEqual("".join(c.choices[0].text for c in chunks), answer.choices[0].text)
        self.assertEqual((last.choices, last.usage), ([], answer.usage))
        if not TINY:
            self.assertIn("Paris", answer.choices[0].text)

    def test_lists(self):
        prompts = ["Once upon a time", "One, two, three,", "The sky is"]
        answer = self.complete(prompts, n=2, extra_body=LONG)
        self.assertEqual([c.index for c in answer.choices], list(range(6)))
        alone = [self.complete(p, extra_body=LONG) for p in prompts]
        self.assertEqual([c.text for c in answer.choices], [a.choices[0].text for a in alone for _ in range(2)])
        self.assertEqual(answer.usage.completion_tokens, 6 * 12)
        self.assertEqual(answer.usage.prompt_tokens, sum(a.usage.prompt_tokens for a in alone))

    def test_token_ids(self):
        ids = [40, 50, 60, 70, 80]
        alone = self.complete(ids, extra_body=LONG)
        self.assertEqual((alone.usage.prompt_tokens, alone.usage.completion_tokens), (5, 12))
        both = self.complete([ids, ids[:3]], extra_body=LONG)
        self.assertEqual(both.choices[0].text, alone.choices[0].text)
        self.assertEqual(both.choices[1].text, self.complete(ids[:3], extra_body=LONG).choices[0].text)

    def test_echo(self):
        prompt = "The sky is blue"
        plain, echoed = self.complete(prompt), self.complete(prompt, echo=True)
        self.assertEqual(echoed.choices[0].text, prompt + plain.choices[0].text)

    def test_logprobs(self):
        answer = self.complete("The sky is", logprobs=2, extra_body=LONG)
        found = answer.choices[0].logprobs
        self.assertEqual([len(found.tokens), len(found.token_logprobs), len(found.text_offset)], [12] * 3)
        self.assertTrue(all(len(top) in (1, 2, 3) for top in found.top_logprobs))
        self.assertTrue(all(value <= 0 for value in found.token_logprobs))
        self.assertEqual(found.text_offset, sorted(found.text_offset))

    def test_prompt_logprobs(self):
        answer = self.complete("The sky is blue", echo=True, logprobs=1, max_tokens=2, extra_body=LONG)
        found = answer.choices[0].logprobs
        self.assertEqual(len(found.tokens), answer.usage.prompt_tokens + 2)
        self.assertIsNone(found.token_logprobs[0])
        self.assertTrue(all(value <= 0 for value in found.token_logprobs[1:]))

    def test_several_and_stop(self):
        answer = self.complete("Once upon a time", n=3, temperature=1, seed=3)
        self.assertEqual([c.text for c in answer.choices],
                         [c.text for c in self.complete("Once upon a time", n=3, temperature=1, seed=3).choices])
        text = self.complete("Once upon a time", extra_body=LONG).choices[0].text
        stopped = self.complete("Once upon a time", stop=text[3:6], extra_body=LONG).choices[0]
        self.assertEqual((stopped.text, stopped.finish_reason), (text[:text.index(text[3:6])], "stop"))


class Models(Case):
    def test_list(self):
        models = list(self.client.models.list())
        self.assertEqual([(m.id, m.object) for m in models], [("the-model", "model")])

    def test_retrieve(self):
        self.assertEqual(self.client.models.retrieve("the-model").id, "the-model")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("another")
        self.assertEqual(caught.exception.code, "model_not_found")


class Errors(Case):
    def test_bad_requests(self):
        for param, kw in {
            "temperature": {"temperature": -1},
            "top_p": {"top_p": 1.5},
            "n": {"n": 0},
            "stop": {"stop": [""]},
            "messages": {"messages": []},
            "messages[0].role": {"messages": [{"role": "wizard", "content": "?"}]},
            "logit_bias": {"logit_bias": {"99999999": 1}},
            "top_logprobs": {"logprobs": True, "top_logprobs": 21},
            "seed": {"seed": "seven"},
            "temprature": {"extra_body": {"temprature": 1}},
        }.items():
            with self.subTest(param):
                error = self.refused(openai.BadRequestError, **kw)
                self.assertEqual(error.type, "invalid_request_error")
                self.assertTrue((error.param or "").startswith(param), f"{error.param}: {error.message}")
                self.assertTrue(error.request_id)

    def test_unknown_field_names_the_right_one(self):
        error = self.refused(openai.BadRequestError, extra_body={"temprature": 1})
        self.assertIn("temperature", error.body["message"])

    def test_bad_stream_request(self):
        self.refused(openai.BadRequestError, stream=True, temperature=-1)

    def test_model(self):
        error = self.refused(openai.NotFoundError, model="another")
        self.assertEqual((error.param, error.code), ("model", "model_not_found"))

    def test_key(self):
        with Case.server.client(api_key="sk-" + "w" * 32) as client:
            with self.assertRaises(openai.AuthenticationError) as caught:
                client.models.list()
            self.assertEqual(caught.exception.code, "invalid_api_key")
            with self.assertRaises(openai.AuthenticationError):
                client.chat.completions.create(model="the-model", messages=FRANCE)

    def test_context(self):
        long = [{"role": "user", "content": "many words " * 20000}]
        error = self.refused(openai.BadRequestError, messages=long)
        self.assertEqual((error.param, error.code), ("messages", "context_length_exceeded"))

    def test_endpoint(self):
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model="the-model", input="text")


class Leaving(Case):
    """Clients that do not wait. An answer of LENGTH tokens takes seconds; it must end early, and for the reason that
    its client left."""

    def not_cancelled(self):
        """Rows that were submitted so far and were not, or not yet, cancelled."""
        return (Case.server.metric("sennit_requests_total") -
                Case.server.metric('sennit_requests_finished_total{finish="cancelled"}'))

    def setUp(self):
        super().setUp()
        self.before = self.not_cancelled()

    def rows_are_gone(self):
        limit = time.monotonic() + LEAVE_S
        while self.not_cancelled() != self.before and time.monotonic() < limit:
            time.sleep(0.005)
        self.assertEqual(self.not_cancelled(), self.before)
        self.assertEqual(Case.server.wait_for("sennit_rows_running", 0, LEAVE_S), "")
        self.assertEqual(Case.server.metric("sennit_rows_waiting"), 0)

    def test_timeout(self):
        with Case.server.client(timeout=0.2) as client:
            with self.assertRaises(openai.APITimeoutError):
                client.chat.completions.create(model="the-model", messages=FRANCE, max_completion_tokens=LENGTH, n=4,
                                               extra_body=LONG)
        self.rows_are_gone()

    def test_stream_closed(self):
        stream = self.chat(stream=True, max_completion_tokens=LENGTH, n=4, extra_body=LONG)
        for _, _ in zip(range(3), stream):
            pass
        self.assertEqual(Case.server.metric("sennit_rows_running"), 4)
        stream.close()
        self.rows_are_gone()


class Concurrent(Case):
    @staticmethod
    def ask(i):
        messages = [{"role": "user", "content": f"Say something about the number {i}."}]
        return {"model": "the-model", "messages": messages, "temperature": 1.0 if i % 2 else 0.0, "seed": i,
                "max_completion_tokens": 8 + i, "extra_body": LONG}

    async def streamed(self, client, i):
        stream = await client.chat.completions.create(**self.ask(i), stream=True)
        return "".join([c.choices[0].delta.content or "" async for c in stream])

    def test_sixteen(self):
        async def together():
            async with Case.server.client(AsyncOpenAI) as client:
                return await asyncio.gather(*(self.streamed(client, i) for i in range(16)))

        alone = [self.client.chat.completions.create(**self.ask(i)).choices[0].message.content for i in range(16)]
        self.assertEqual(asyncio.run(together()), alone)


class Busy(Case):
    """One row, and one place to wait for it."""

    async def fill(self, server, client, then):
        ask = {"model": "the-model", "messages": FRANCE, "max_completion_tokens": LENGTH, "extra_body": LONG}
        running = await client.chat.completions.create(**ask, stream=True)
        waiting = asyncio.create_task(client.chat.completions.create(**ask | {"max_completion_tokens": 4}))
        await asyncio.sleep(0)
        problem = await asyncio.to_thread(server.wait_for, "sennit_rows_waiting", 1, 5)
        self.assertEqual(problem, "")
        await then(client, ask | {"max_completion_tokens": 4}, running)
        await running.close()
        self.assertEqual((await waiting).usage.completion_tokens, 4)

    async def refused_then_retried(self, client, ask, running):
        with self.assertRaises(openai.RateLimitError) as caught:
            await client.chat.completions.create(**ask)
        error = caught.exception
        self.assertEqual(error.type, "rate_limit_error")
        self.assertGreaterEqual(int(error.response.headers["retry-after"]), 1)
        # A client with retries does what the header says, and gets its answer.
        patient = asyncio.create_task(client.with_options(max_retries=8).chat.completions.create(**ask))
        await asyncio.sleep(0.1)
        await running.close()
        self.assertEqual((await patient).usage.completion_tokens, 4)

    def test_rate_limit(self):
        async def all_of_it(server):
            async with server.client(AsyncOpenAI) as client:
                await self.fill(server, client, self.refused_then_retried)

        server = Server("--max-rows", "1", "--queue", "1")
        try:
            asyncio.run(all_of_it(server))
        finally:
            server.stop()


def tearDownModule():
    if Case.server is not None:
        Case.server.stop()


def main():
    global SENNIT, MODEL, TINY, LENGTH, LEAVE_S
    SENNIT, MODEL, *rest = sys.argv[1:]
    TINY = MODEL == "--tiny"
    LENGTH = 6000 if TINY else 1500
    LEAVE_S = 10 if TINY else 1  # sanitizers have the tiny one
    with tempfile.TemporaryDirectory(prefix="sennit-openai-") as folder:
        if TINY:
            program, *rest = rest
            MODEL = folder + "/tiny.gguf"
            subprocess.run([program, "--out", MODEL, "--context", "8192"], check=True)
        print(f"openai {openai.__version__}, Python {sys.version.split()[0]}, {'tiny' if TINY else 'real'} model")
        sys.stdout.flush()
        unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
