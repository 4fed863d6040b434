/* Fuzz target of the server's requests: any body gives a call that holds what its header promises, or an error of 400
 * that can be shown. The first byte chooses the endpoint, whether the template knows developers, and an allocation
 * that fails in another try. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "serve/alloc.h"
#include "serve/answer.h"
#include "serve/json.h"
#include "serve/text.h"

static void demand(bool ok)
{
    if (!ok)
        abort();
}

/* What is read is written and read again; what is not has a reason that can be shown. */
static void check_json(const char *text, size_t n)
{
    struct sv_json_problem problem;
    struct sv_buf out = {0};
    json_t *a = sv_json_read(text, n, 2000, &problem), *b = NULL;
    demand(!a || !memchr(text, '\0', n));
    demand(a || (problem.text[0] && !problem.no_memory && sv_utf8_valid(problem.text, strlen(problem.text))));
    if (a) {
        sv_json_write(&out, a);
        demand(!out.failed);
        b = sv_json_read(out.data, out.n_bytes, 2000, &problem);
        demand(b && json_equal(a, b));
    }
    json_decref(a);
    json_decref(b);
    sv_buf_release(&out);
}

static long left;

static bool all_but_one(size_t n_bytes)
{
    (void)n_bytes;
    return left-- != 0;
}

/* Without memory at allocation `which` the request is refused with 503, or was done by then. */
static void check_starving(enum sv_endpoint endpoint, const char *body, size_t n, bool developer, long which)
{
    struct sv_call call;
    struct sv_error err = {.http = 0};
    left = which;
    sv_alloc_hook = all_but_one;
    bool ok = sv_call_parse(endpoint, body, n, developer, &call, &err);
    sv_alloc_hook = NULL;
    demand(left >= 0 || (!ok && err.http == 503));
    sv_call_release(&call);
}

static void check_error(const struct sv_error *err, const struct sv_call *call)
{
    struct sv_call zero;
    struct sv_buf text = {0};
    memset(&zero, 0, sizeof zero);
    demand(memcmp(call, &zero, sizeof zero) == 0);
    demand(err->http == 400 && err->message[0] && strcmp(err->type, "invalid_request_error") == 0);
    demand(sv_utf8_valid(err->message, strlen(err->message)) && sv_utf8_valid(err->param, strlen(err->param)));
    json_t *v = sv_error_json(err);
    sv_error_write(err, &text);
    json_t *w = text.data ? json_loads(text.data, 0, NULL) : NULL;
    demand(v && w && json_equal(v, w));
    json_decref(v);
    json_decref(w);
    sv_buf_release(&text);
}

static bool between(float x, float lo, float hi)
{
    return x >= lo && x <= hi;
}

static void check_sampling(const struct sennit_sampling *s)
{
    demand(s->temperature == 0 || between(s->temperature, 1e-4f, 100));
    demand(s->top_p > 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p < 1);
    demand(between(s->repetition_penalty, 0.001f, 1000));
    demand(between(s->presence_penalty, -2, 2) && between(s->frequency_penalty, -2, 2));
    demand(s->n_biases <= SV_MOST_BIASES);
    for (uint32_t i = 0; i < s->n_biases; i++)
        demand(s->biases[i].id >= 0 && between(s->biases[i].bias, -100, 100));
}

static void check_messages(const struct sv_call *call, bool developer)
{
    json_t *vars = json_loads(call->vars_json, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL), *m;
    const json_t *messages = json_object_get(vars, "messages");
    size_t i;
    demand(json_is_object(vars) && json_is_array(messages) && json_array_size(messages) > 0);
    json_array_foreach((json_t *)messages, i, m)
    {
        const char *role = json_string_value(json_object_get(m, "role"));
        demand(role && (developer || strcmp(role, "developer") != 0));
        demand(json_is_string(json_object_get(m, "content")));
    }
    demand(!json_object_get(vars, "bos_token") && !json_object_get(vars, "eos_token"));
    json_decref(vars);
}

static void check_prompts(const struct sv_call *call)
{
    demand(call->n_prompts > 0);
    for (uint32_t i = 0; i < call->n_prompts; i++) {
        const struct sv_prompt *p = &call->prompts[i];
        demand((p->text != NULL) != (p->ids != NULL) && (p->ids != NULL) == (p->n_ids > 0));
        demand(!p->text || (sv_utf8_valid(p->text, p->n_text) && p->text[p->n_text] == '\0'));
        for (size_t k = 0; k < p->n_ids; k++)
            demand(p->ids[k] >= 0);
    }
}

static void check_call(const struct sv_call *call, bool developer)
{
    bool chat = call->endpoint == SV_CHAT;
    demand((call->vars_json != NULL) == chat && (call->n_prompts == 0) == chat);
    if (chat)
        check_messages(call, developer);
    else
        check_prompts(call);
    demand(call->n >= 1 && (uint64_t)call->n * (chat ? 1 : call->n_prompts) <= SV_MOST_CHOICES);
    demand(call->n_top <= SV_MOST_TOP_LOGPROBS && (call->logprobs || call->n_top == 0));
    demand(!call->include_usage || call->stream);
    demand(call->n_stop <= SV_MOST_STOPS);
    for (uint32_t i = 0; i < call->n_stop; i++) {
        size_t n = strlen(call->stop[i]);
        demand(n > 0 && n <= SV_MOST_STOP_BYTES && sv_utf8_valid(call->stop[i], n));
    }
    check_sampling(&call->sampling);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct sv_call call;
    struct sv_error err;
    if (n_bytes == 0)
        return 0;
    sv_json_init();
    bool developer = data[0] & 2;
    enum sv_endpoint endpoint = data[0] & 1 ? SV_COMPLETION : SV_CHAT;
    const char *body = (const char *)data + 1;
    check_json(body, n_bytes - 1);
    check_starving(endpoint, body, n_bytes - 1, developer, data[0] >> 2);
    if (sv_call_parse(endpoint, body, n_bytes - 1, developer, &call, &err))
        check_call(&call, developer);
    else
        check_error(&err, &call);
    sv_call_release(&call);
    return 0;
}
