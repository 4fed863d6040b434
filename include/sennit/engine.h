/* The engine: many requests, one batch, each with the answer that it would have had alone.
 *
 * One thread owns the engine and calls sennit_engine_step in a loop (or lets sennit_engine_start make that thread).
 * Any thread may submit, cancel and read events. A step is a ragged batch: one token of every running row and chunks
 * of the prompts that are being read. Requests are admitted first in, first out (but single ones may pass a group of
 * sennit_engine_submit_n whose prompt is being read), when a row is free and the cache budget covers
 * projected_bytes(prompt + max_tokens) and the arrays that the answer's events need: a row's whole storage is
 * promised before it starts, so rows do not run out of the budget, and a waiting request holds little more than its
 * prompt. A step's scratch grows with the longest row; if the machine itself has no memory left for it, the youngest
 * row ends with SENNIT_NOMEM and the others go on. */
#ifndef SENNIT_ENGINE_H
#define SENNIT_ENGINE_H

#include "sennit/base.h"
#include "sennit/family.h"
#include "sennit/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sennit_engine;
struct sennit_request;
struct sennit_session;

/* Copied: no pointer needs to outlive the call but the logger's ctx, the allocator's and cache_external. */
struct sennit_engine_options {
    struct sennit_allocator allocator; /* {0} = default */
    struct sennit_logger logger;
    const char *isa;           /* "scalar", "avx2", "avx512"; NULL = best */
    uint32_t n_threads;        /* 0 = CPUs of the process */
    uint32_t max_rows;         /* rows in the batch; 0 = 16 */
    uint32_t chunk;            /* most prompt tokens of one row in one step; 0 = 512 */
    uint32_t step_tokens; /* most tokens of one step over all rows; 0 = max_rows + chunk. Running rows come first */
    /* Budget for all rows and kept sessions: their caches and, of a running row, its tokens, events and reported
     * log-probabilities up to max_tokens (which stay, outside of the budget, until the request is freed). 0 = half of
     * the available memory. With "padded" a running row is promised twice the context, since it has the columns of
     * the furthest row; families that copy rows (sennit_cache_family_info) hold a batch twice while a row joins */
    uint64_t cache_bytes;
    const char *cache_family;  /* NULL = "plain", or what cache_external is called */
    /* A family from outside the library (sennit/family.h) for all layers; borrowed until the engine and its sessions
     * are freed. NULL = one of the library's */
    const struct sennit_family *cache_external;
    sennit_type kv_type;       /* with kv_type_set: SENNIT_F16 (the default), SENNIT_BF16 or SENNIT_F32. An external
                                  family without SENNIT_FIELDS_TYPES has none: SENNIT_INVALID */
    bool kv_type_set;
    /* Codes of keys and values, in families that keep codes instead of types ("affine", "turboquant"): as in struct
     * sennit_cache_config. All 0: affine of 8 bits in groups of 32, turboquant of 8 and 3. SENNIT_INVALID in
     * others. */
    struct {
        uint32_t k_bits, v_bits, group;
    } kv_code;
    bool no_pin;               /* leave threads unpinned */
    uint32_t max_waiting;      /* requests that may wait for a row; a submit above it is SENNIT_BUSY. 0 = no limit */
    /* Called on the owner's thread, once after every step that gave events or ended requests, and when the engine
     * fails; and by sennit_engine_stop and sennit_engine_free on the caller's thread when they end requests. What it
     * announces can be read by then. A program that serves many requests wakes its reader here and asks each with
     * sennit_request_poll, instead of keeping a thread in every sennit_request_next_event (examples/many.c). Must
     * return at once and must not call the library. NULL = none. */
    void (*notify)(void *ctx);
    void *notify_ctx;
    /* Faults on purpose, for tests of programs: SENNIT_UNSUPPORTED unless the library was built with
     * SENNIT_TEST_HOOKS (debug and sanitizer builds are). Step numbers count from 1; 0 = never. */
    struct {
        uint64_t fail_at_step;           /* the engine fails in this step */
        uint64_t stall_at_step;          /* this step takes stall_ms longer */
        uint32_t stall_ms;
    } test;
};

/* The model is borrowed and must outlive the engine. *out: owned. */
SENNIT_API sennit_status sennit_engine_create(struct sennit_engine **out, const struct sennit_model *model,
                                              const struct sennit_engine_options *options, struct sennit_error *err);
/* Ends all rows (their requests end with SENNIT_FINISH_CANCELLED) and frees. Requests and sessions must be freed
 * first or after; both work. Stops the thread of sennit_engine_start. NULL is fine. */
SENNIT_API void sennit_engine_free(struct sennit_engine *engine);

/* ---- requests -------------------------------------------------------------------------------------------------- */

struct sennit_bias {
    int32_t id;
    float bias; /* added to the logit; within +-1e6 */
};

/* The pipeline of docs/numerics.md, in its order. {0} means greedy without changes. */
struct sennit_sampling {
    float temperature;        /* 0 = greedy; else finite and >= 1e-4 */
    uint32_t top_k;           /* 0 = off */
    float top_p;              /* 0 = off; 0 < p <= 1 */
    float min_p;              /* 0 = off; 0 < p < 1 */
    float repetition_penalty; /* 0 or 1 = off; 0.001 to 1000; over prompt and answer */
    float presence_penalty, frequency_penalty; /* over the answer; within +-1e6 */
    uint64_t seed;
    uint32_t choice;          /* index of this answer among several to one prompt; part of the random counter */
    const struct sennit_bias *biases;
    uint32_t n_biases;
};

struct sennit_request_options {
    const int32_t *prompt; /* copied; at least one id */
    size_t n_prompt;
    uint32_t max_tokens;   /* 0 = ends with reason length and no token, at once or once prompt_logprobs were given */
    struct sennit_sampling sampling;
    const char *const *stop; /* UTF-8 strings that end the answer; the text stops before them */
    uint32_t n_stop;
    bool ignore_eos;       /* go on past end tokens */
    bool keep_special;     /* show control tokens in the text */
    uint32_t n_logprobs;   /* report this many most likely tokens with each token (and the token's own), 0 = none, at
                              most 64 */
    bool want_logprob;     /* report the token's own log-probability */
    bool prompt_logprobs;  /* report the prompt's own tokens too: one PROMPT event for each, before the first TOKEN,
                              with n_logprobs alternatives. Such a prompt is read in short spans, for each of its
                              tokens needs its logits. Not together with a session */
    const int32_t *forced; /* teacher forcing: tokens to take instead of the sampled ones; [max_tokens] or NULL */
    struct sennit_session *session; /* resume from and keep the row's state; NULL = none */
};

typedef enum sennit_finish {
    SENNIT_FINISH_NONE,
    SENNIT_FINISH_STOP,      /* an end token or a stop string */
    SENNIT_FINISH_LENGTH,    /* max_tokens, or the context is full */
    SENNIT_FINISH_CANCELLED,
    SENNIT_FINISH_ERROR
} sennit_finish;
SENNIT_API const char *sennit_finish_name(sennit_finish finish); /* "stop", "length", "cancelled", "error" */

typedef enum sennit_event_kind {
    SENNIT_EVENT_NONE,  /* nothing within the timeout */
    SENNIT_EVENT_START, /* admitted: prompt reading begins */
    SENNIT_EVENT_TOKEN,
    SENNIT_EVENT_END,   /* the last event */
    SENNIT_EVENT_PROMPT /* one prompt token, with prompt_logprobs: id, logprob and top; no text. The first token has
                           nothing before it: its logprob is 0 and n_top is 0 */
} sennit_event_kind;

struct sennit_logprob {
    int32_t id;
    float logprob; /* natural log, from the raw logits */
};

struct sennit_event {
    sennit_event_kind kind;
    uint64_t time_ns; /* when the engine gave it, by CLOCK_MONOTONIC; 0 for NONE and PROMPT */
    /* TOKEN: one chosen token. text is whole UTF-8 characters, and may be empty while a character or a possible stop
     * string is incomplete. The END event may carry the last text. Valid until the next call for this request. */
    int32_t id;
    const char *text;
    size_t n_text;
    float logprob;
    const struct sennit_logprob *top; /* [n_top], most likely first */
    uint32_t n_top;
    int32_t forced_choice; /* with `forced`: what would have been chosen */
    /* END */
    sennit_finish finish;
    struct sennit_error error; /* FINISH_ERROR */
    uint64_t digest;           /* of all logits from which tokens were chosen */
    size_t n_prompt, n_reused, n_generated; /* tokens; reused = came from the session, or from the reading of another
                                               of the n answers */
    uint32_t n_prefill_spans;
};

/* Any thread. *out: owned. SENNIT_INVALID for bad options; SENNIT_RANGE when prompt + max_tokens exceeds the
 * context (both numbers in the message); SENNIT_TOO_BIG when it can never fit the cache budget (both numbers);
 * SENNIT_BUSY when max_waiting requests wait; SENNIT_STATE when the engine has failed. */
SENNIT_API sennit_status sennit_engine_submit(struct sennit_engine *engine,
                                              const struct sennit_request_options *options,
                                              struct sennit_request **out, struct sennit_error *err);
/* n answers (at least 1) to one prompt: n requests as if submitted one after another with sampling.choice, choice +
 * 1 ..., but the prompt is read once and its pages are shared. out: [n], each owned, read, cancelled and freed by
 * itself. All or nothing; max_waiting counts each. SENNIT_INVALID with forced, session or prompt_logprobs when n >
 * 1. While members wait, the shared pages of the prompt are part of what is promised: SENNIT_TOO_BIG counts them
 * too. */
SENNIT_API sennit_status sennit_engine_submit_n(struct sennit_engine *engine,
                                                const struct sennit_request_options *options, uint32_t n,
                                                struct sennit_request **out, struct sennit_error *err);
/* Any thread, any time; the END event follows at the next step. */
SENNIT_API void sennit_request_cancel(struct sennit_request *request);
/* One reader per request at a time. timeout_ms 0 = do not wait, < 0 = for ever. SENNIT_OK with kind NONE on timeout,
 * and at once when END has been read. */
SENNIT_API sennit_status sennit_request_next_event(struct sennit_request *request, struct sennit_event *out,
                                                   int timeout_ms, struct sennit_error *err);
/* What sennit_request_next_event would give now, without taking it. Any thread; never waits for a step. */
struct sennit_request_state {
    bool started, ended;  /* the row was admitted; END is there (read or not) */
    size_t n_ready;       /* events that can be read without waiting, END included */
};
SENNIT_API void sennit_request_poll(const struct sennit_request *request, struct sennit_request_state *out);
/* Any thread, while nobody reads the request; cancels it if it has not ended. NULL is fine. */
SENNIT_API void sennit_request_free(struct sennit_request *request);

/* A conversation's state between turns. A request with a session starts from the longest common prefix of its prompt
 * and what the session holds, and leaves its own state there when it ends. One request at a time. What a session
 * holds counts against the cache budget, and is dropped (a slower next turn, the same answer) when a waiting request
 * needs the room. */
SENNIT_API sennit_status sennit_session_create(struct sennit_session **out, struct sennit_engine *engine,
                                               struct sennit_error *err);
SENNIT_API void sennit_session_free(struct sennit_session *session); /* NULL is fine */

/* ---- running --------------------------------------------------------------------------------------------------- */

/* Owner's thread. Admits, runs one step, gives events. *worked: false when there was nothing to do. A row's error
 * goes to its request; an error here is the failure of the engine (see sennit_engine_load), the same again at every
 * later call. SENNIT_STATE while the thread of sennit_engine_start owns the engine. */
SENNIT_API sennit_status sennit_engine_step(struct sennit_engine *engine, bool *worked, struct sennit_error *err);
/* Owner's thread: waits until there is something to do; false on timeout. timeout_ms < 0 = for ever. true at once
 * when the engine has failed, which the next step says. */
SENNIT_API bool sennit_engine_wait(struct sennit_engine *engine, int timeout_ms);
/* Makes a thread that owns the engine and steps it until sennit_engine_stop, or until the engine fails. SENNIT_STATE
 * when there is one, or when the engine has failed. */
SENNIT_API sennit_status sennit_engine_start(struct sennit_engine *engine, struct sennit_error *err);
/* cancel: end the rows now; otherwise finish all that was submitted. Returns when the thread has ended. */
SENNIT_API void sennit_engine_stop(struct sennit_engine *engine, bool cancel);

/* ---- what was in force ----------------------------------------------------------------------------------------- */

struct sennit_kernel_use {
    const char *kernel, *variant; /* "gemm_q4_1", "avx512" */
    const uint64_t *calls;        /* [n_threads] */
};
struct sennit_stats {
    const char *isa;
    uint32_t n_threads, max_rows, chunk, step_tokens;
    const char *cache_family, *kv_type; /* kv_type: as sennit_cache_dtype names it */
    /* bytes: the limit, promised to rows and sessions, live now */
    uint64_t cache_budget, cache_reserved, cache_bytes;
    uint64_t cache_bytes_per_token;
    uint64_t weight_bytes_read;  /* in all steps */
    uint64_t n_steps, n_decode_steps, n_spans, n_tokens, n_logit_rows;
    uint32_t rows_running, rows_waiting, most_rows_in_step;
    uint64_t heap_bytes, heap_peak;
    const struct sennit_kernel_use *kernels; /* [n_kernels] that were called at least once */
    uint32_t n_kernels;
};
/* Owner's thread, or any thread while the engine does not run. Pointers valid until the next call or step. */
SENNIT_API const struct sennit_stats *sennit_engine_stats(struct sennit_engine *engine);

/* How busy the engine is. Unlike sennit_engine_stats any thread may ask at any time. The figures are those of the end
 * of the last step; rows_waiting, n_requests, n_finished, heap_*, ms_in_step, has_thread and failed are of now. */
struct sennit_load {
    uint32_t rows_running, rows_waiting, max_rows, max_waiting;
    /* bytes: the limit; promised to rows and sessions; of that, held by idle sessions; live in pages and tables */
    uint64_t cache_budget, cache_reserved, cache_sessions, cache_bytes;
    uint64_t heap_bytes, heap_peak;   /* all memory of the engine */
    uint64_t n_steps;
    uint64_t n_prompt_tokens, n_answer_tokens; /* read (a session's are not read again); chosen */
    uint64_t n_requests, n_finished[SENNIT_FINISH_ERROR + 1]; /* submitted; ended, by sennit_finish */
    uint64_t ms_in_step;              /* since there is work and no step has ended; 0 without work */
    bool has_thread;                  /* the thread of sennit_engine_start lives */
    bool failed;
    struct sennit_error failure;      /* with failed */
};
/* A failed engine (a broken invariant: a bug) has ended all its requests with SENNIT_FINISH_ERROR and the failure,
 * and refuses new ones with SENNIT_STATE; it can only be freed. */
SENNIT_API void sennit_engine_load(struct sennit_engine *engine, struct sennit_load *out);

/* One row of a step, for those who want to see how batches form. */
struct sennit_step_span {
    uint64_t request_id;
    uint64_t pos;
    uint32_t n_tokens;
};
/* The spans of the last step; *spans borrowed until the next step. Owner's thread. */
SENNIT_API uint32_t sennit_engine_last_step(const struct sennit_engine *engine,
                                            const struct sennit_step_span **spans);
SENNIT_API uint64_t sennit_request_id(const struct sennit_request *request);

#ifdef __cplusplus
}
#endif
#endif
