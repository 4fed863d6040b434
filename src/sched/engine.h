/* The scheduler's state: rows' life, admission, batch forming.
 *
 *            submit                admit                      stop, length, error, cancel
 *   inbox ───────────▶ waiting ───────────▶ running (a row) ─────────────────────────────▶ done
 *                         │                                                                 ▲
 *                         └───────────────── cancel ─────────────────────────────────────────┘
 *
 * Invariants:
 *  1. rows[b] is row b of every layer's cache; n_rows == sennit_cache_batch_size of each.
 *  2. reserved == sum over rows of need + sum over sessions and groups of held <= budget; the engine's `held` is that
 *     of the sessions.
 *  3. Only the owner's thread touches rows, layers, groups and sessions' caches. The lock guards the inbox, requests'
 *     events, cancel flags, reference counts, the failure and the public figures.
 *  4. A row's tokens[0 .. n_state) are in the state; tokens[n_state .. n_tokens) are pending, at least one. */
#ifndef SN_ENGINE_H
#define SN_ENGINE_H

#include "base/cpu.h"
#include "base/thread.h"
#include "cache/pool.h"
#include "model/forward.h"
#include "sample/sample.h"
#include "sched/policy.h"
#include "sched/stop.h"
#include "sennit/engine.h"

#include <pthread.h>
#define XXH_STATIC_LINKING_ONLY /* the hash state as a member, not an allocation of its own */
#include <xxhash.h>

enum { SN_MAX_LOGPROBS = 64 };
/* Rows of logits in one step beyond one for each row: for prompts whose tokens are reported. */
enum { SN_SPARE_LOGITS = 16 };

/* One TOKEN event; text and top lie in the request's shared arrays. */
struct sn_token_event {
    int32_t id, forced_choice;
    float logprob;
    size_t text_end; /* the event's text ends here in out.data; it starts where the last one ended */
    uint32_t n_top;
    uint64_t time_ns;
};

/* What a step found for a row, written by the worker that had its logits. */
struct sn_choice {
    int32_t id, sampled;
    float logprob;
    bool not_finite;
};

enum sn_request_state { SN_REQ_WAITING, SN_REQ_RUNNING, SN_REQ_DONE };

struct sennit_request {
    struct sennit_engine *engine;
    struct sennit_request *next; /* inbox and waiting list */
    uint64_t id;
    int n_refs; /* user, engine; under the lock */
    enum sn_request_state state;

    /* fixed at submit */
    struct sn_sampling sampling;
    struct sn_bias *biases;
    struct sn_stop_list stops;
    int32_t *forced; /* [max_tokens] or NULL */
    uint32_t max_tokens, n_logprobs;
    bool want_logprob, ignore_eos, prompt_logprobs;
    struct sennit_session *session;
    struct sn_group *group; /* until it ends; NULL = none. The owner's, once the request is queued */

    /* the row */
    int32_t *tokens; /* [tokens_cap]: the prompt; with room for max_tokens more once the row starts */
    size_t tokens_cap;
    size_t n_prompt, n_tokens, n_state, n_reused;
    uint32_t n_prefill_spans;
    uint64_t need; /* bytes reserved: caches and the arrays of sn_request_make_room */
    struct sn_detok detok;
    struct sn_buf text; /* all text decoded so far */
    size_t n_given;     /* of it, given out */
    bool stop_hit;      /* what is not given out begins with a stop string */
    struct sn_choice choice;
    sennit_finish end_finish; /* how the row ends, once it does */
    struct sennit_error end_error;
    struct sennit_logprob *step_top; /* [n_logprobs] of this step */
    XXH3_state_t digest;
    /* with prompt_logprobs, made when the row is: of prompt token i given those before it. Entries below
     * n_prompt_events are the reader's, those above it the step's */
    float *prompt_logprob;              /* [n_prompt] */
    struct sennit_logprob *prompt_tops; /* [n_prompt * n_logprobs] */

    /* events, under the lock */
    pthread_cond_t changed;
    bool cancelled, started;
    uint64_t start_ns, end_ns;
    struct sn_token_event *events; /* [max_tokens] */
    struct sennit_logprob *tops;   /* [max_tokens * n_logprobs] */
    size_t n_events, n_prompt_events;
    struct sn_buf out; /* text of the events */
    sennit_finish finish;
    struct sennit_error error;

    /* the reader */
    bool start_read, end_read;
    size_t n_read, n_prompt_read, text_read;
    struct sn_buf reader_text;
    struct sennit_logprob *reader_top; /* [n_logprobs] */
};

struct sennit_session {
    struct sennit_engine *engine;
    struct sennit_session *next;  /* engine's list */
    bool released, busy;          /* under the lock: the user is done with it; a request has it */
    struct sennit_cache **layers; /* [n_layers] serial caches, or NULL when it holds nothing */
    int32_t *tokens;
    size_t n_tokens;
    uint64_t held, last_use;
};

/* Requests with one prompt in common: see group.c. */
struct sn_group {
    uint32_t n_refs;               /* members that have not ended */
    uint32_t n_queued;             /* of them, those that are no rows yet */
    struct sennit_request *leader; /* the row that reads the prompt for all; NULL once it has, or without one */
    struct sennit_cache **layers;  /* [n_layers] serial caches: the snapshot, or NULL */
    size_t n_tokens;               /* of the snapshot: the prompt but for its last token */
    uint64_t need, held; /* bytes of a snapshot; of that, reserved: need from the leader's admission on, else 0 */
};

struct sn_engine_config {
    struct sennit_logger log;
    enum sn_isa isa;
    uint32_t n_threads, max_rows, chunk, step_tokens;
    uint64_t cache_bytes;
    uint32_t max_waiting; /* 0 = no limit */
    const char *cache_family;
    const struct sennit_family *cache_external; /* borrowed; NULL = none */
    sennit_type kv_type;                        /* 0 where codes are kept */
    uint32_t k_bits, v_bits, group;             /* of the codes, else 0 */
    bool pin;
    void (*notify)(void *ctx);
    void *notify_ctx;
    uint64_t fail_at_step, stall_at_step; /* faults on purpose; 0 = never */
    uint32_t stall_ms;
    struct sennit_allocator allocator;
};

struct sennit_engine {
    struct sn_heap heap;
    struct sn_engine_config cfg;
    const struct sennit_model *m;
    struct sn_kernels kernels;
    struct sn_calls *calls; /* [n_threads] */
    struct sn_pool *threads;
    struct sennit_pool *pages;
    struct sn_forward *forward;
    struct sn_sampler *samplers; /* [n_threads] */

    struct sennit_cache **layers; /* [n_layers] the running batch */
    struct sennit_cache **fresh;  /* [n_layers] scratch of admission */
    struct sennit_cache **proto;  /* [n_layers] empty, never changed: what any thread may ask for sizes */
    bool shares_columns;          /* a row has as many columns as the one of the batch that reaches furthest */
    struct sennit_request **rows; /* [max_rows] */
    uint32_t n_rows;
    uint64_t reserved;
    struct sennit_request *waiting, **waiting_end;
    struct sennit_session *sessions;

    /* of the step */
    struct sn_want *wants;              /* [max_rows] */
    uint32_t *span_tokens;              /* [max_rows] */
    struct sennit_span *spans;          /* [max_rows] */
    struct sennit_step_span *last_step; /* [max_rows] */
    uint32_t n_last;
    uint32_t *keep; /* [max_rows] */
    bool *gone;     /* [max_rows] */

    pthread_mutex_t lock;
    pthread_cond_t wake; /* the owner: there may be something to do */
    struct sennit_request *inbox, **inbox_end;
    uint32_t n_waiting; /* in the inbox and the waiting list */
    struct sennit_session *new_sessions;
    bool poked;      /* a cancel or a released session waits */
    bool closed;     /* sennit_engine_free has been called */
    uint64_t n_refs; /* the user, each request, each session */
    uint64_t next_id, clock;

    pthread_t thread;
    bool has_thread, stop_thread, stop_now;
    bool thread_lives; /* has_thread until it is joined, thread_lives while it runs */
    bool failed;
    struct sennit_error failure;
    struct sennit_load load;   /* as of the end of the last step; n_requests and n_finished of now */
    uint64_t last_ms, work_ms; /* monotonic clock: when a step ended last; when work came where there was none */

    bool told;                                 /* owner's: this step gave events, so notify is due */
    uint64_t held;                             /* owner's: sum over sessions of held */
    uint64_t n_prompt_tokens, n_answer_tokens; /* owner's */
    struct sennit_stats stats;
    struct sennit_kernel_use *uses; /* [SN_K_COUNT] */
    uint64_t *use_calls;            /* [SN_K_COUNT * n_threads] */
};

/* engine.c */
sennit_status sn_engine_create(struct sennit_engine **out, const struct sennit_model *m,
                               const struct sn_engine_config *cfg, struct sennit_error *err);
void sn_engine_unref_locked(struct sennit_engine *e); /* takes the lock's ownership: unlocks, frees at zero */
struct sennit_cache_config sn_engine_cache_config(const struct sennit_engine *e, uint32_t layer);
/* Sum over layers of projected_bytes(tokens). */
uint64_t sn_engine_projected(const struct sennit_engine *e, uint64_t tokens);
/* The same of a running row that may come to have that many. Where rows share columns it is that of twice the
 * context, which no batch passes: a merge aligns rows at the longest, and none grows by more after it. */
uint64_t sn_engine_row_projected(const struct sennit_engine *e, uint64_t tokens);

/* request.c */
sennit_status sn_request_create(struct sennit_request **out, struct sennit_engine *e,
                                const struct sennit_request_options *o, struct sennit_error *err);
void sn_request_destroy(struct sennit_request *r); /* one that was never queued */
/* Bytes of the cache budget that the request will be promised: the caches of its row and the arrays of its answer and
 * of what is reported of its prompt. UINT64_MAX when it cannot be counted. */
uint64_t sn_request_need(const struct sennit_engine *e, const struct sennit_request_options *o);
/* Owner's thread, once, before the row starts: everything that the row will need while it runs, so that only its text
 * can still ask for memory. On an error what there is is freed with the request. */
sennit_status sn_request_make_room(struct sennit_request *r, struct sennit_error *err);
/* Owner's thread: the prompt's tokens up to n_state have their logits. */
void sn_request_give_prompt(struct sennit_request *r);
/* Under the lock: SENNIT_STATE when the engine has failed, SENNIT_BUSY when n more requests would be above
 * max_waiting. */
sennit_status sn_engine_may_queue_locked(const struct sennit_engine *e, uint32_t n, struct sennit_error *err);
/* Any thread: puts new requests, all or none, one after another at the end of the queue. SENNIT_STATE when the
 * session (of a single one; else NULL) is busy. */
sennit_status sn_engine_enqueue(struct sennit_engine *e, struct sennit_request *const *requests, uint32_t n,
                                struct sennit_session *session, struct sennit_error *err);
void sn_request_unref_locked(struct sennit_request *r); /* as sn_engine_unref_locked */
/* Owner's thread: ends a request that is not (any more) a row. err may be NULL. */
void sn_request_finish(struct sennit_request *r, sennit_finish finish, const struct sennit_error *err);
/* Owner's thread: after a token was chosen: decodes, scans for stop strings, gives the event. Returns how the answer
 * ended, or SENNIT_FINISH_NONE. */
sennit_finish sn_request_take_choice(struct sennit_request *r, struct sennit_error *err);

/* admit.c */
/* As many waiting ones as fit, in order. true: one at least left the queue. */
bool sn_engine_admit(struct sennit_engine *e);
struct sennit_request *sn_engine_pop_waiting(struct sennit_engine *e); /* the first one; there is one */
/* Removes the rows for which gone[b] is set: their state goes to their session or is freed. */
void sn_engine_remove_rows(struct sennit_engine *e, const bool *gone);

/* session.c */
void sn_session_sweep(struct sennit_engine *e); /* frees what was released and is not busy */
void sn_session_drop_state(struct sennit_engine *e, struct sennit_session *s);
/* Drops idle sessions other than `but`, least recently used first, until `need` more bytes fit the budget. */
void sn_session_make_room(struct sennit_engine *e, uint64_t need, const struct sennit_session *but);
/* Trims the session's state to its longest common prefix with the prompt (at most n_prompt - 1) and says how long
 * that is; 0 when nothing can be reused, and the session is then empty. */
size_t sn_session_rewind(struct sennit_engine *e, struct sennit_session *s, const int32_t *prompt, size_t n_prompt);
/* Keeps row b's state in the session of its request. Without memory the session stays empty. */
void sn_session_keep(struct sennit_engine *e, struct sennit_session *s, uint32_t row, const struct sennit_request *r);

/* group.c */
/* n_prompt: at least 2. */
sennit_status sn_group_create(struct sn_group **out, struct sennit_engine *e, uint32_t n_members, size_t n_prompt,
                              struct sennit_error *err);
/* One whose members were never queued; NULL is fine. */
void sn_group_free(struct sennit_engine *e, struct sn_group *g);
/* The head of the queue: is its prompt being read for it? */
bool sn_group_must_wait(const struct sennit_request *r);
/* Bytes to be promised beyond r->need, should r become a row now. */
uint64_t sn_group_extra_need(const struct sennit_request *r);
void sn_group_started(struct sennit_engine *e, struct sennit_request *r); /* r has become a row */
void sn_group_leave(struct sennit_engine *e, struct sennit_request *r);   /* r ends, from wherever it is */
/* Tokens that r's next span may take, so that one span ends where the snapshot is taken; SENNIT_UNBOUNDED = any. */
uint64_t sn_group_span_limit(const struct sennit_request *r);
/* After a span of r, which is row `row` and goes on: takes the snapshot if this is the place. */
void sn_group_after_span(struct sennit_engine *e, const struct sennit_request *r, uint32_t row);

/* step.c */
/* Moves the inbox to the waiting list, and new sessions to the engine's list. */
void sn_engine_take_orders(struct sennit_engine *e);
/* Ends every request, waiting or running, as cancelled. */
void sn_engine_cancel_all(struct sennit_engine *e);
/* As sennit_engine_step. What goes wrong with a row is its own error; an error here is the failure of the engine. */
sennit_status sn_engine_step(struct sennit_engine *e, bool *worked, struct sennit_error *err);

/* load.c */
uint64_t sn_now_ns(void); /* monotonic */
uint64_t sn_now_ms(void);
/* Under the lock: a request was submitted. */
void sn_engine_count_request_locked(struct sennit_engine *e);
/* Owner's thread, at the end of a step and of whatever ends requests: makes its figures public and notifies. */
void sn_engine_publish(struct sennit_engine *e);
/* Owner's thread: the first invariant, and the fault that a test asked for. */
sennit_status sn_engine_check(const struct sennit_engine *e, struct sennit_error *err);
/* Owner's thread: refuses new requests from now on and ends all that there are with SENNIT_FINISH_ERROR. The caches
 * are given back without a look at them. */
void sn_engine_fail(struct sennit_engine *e, const struct sennit_error *failure);
/* SENNIT_STATE in the words of the failure. Under the lock. */
sennit_status sn_engine_failed_locked(const struct sennit_engine *e, struct sennit_error *err);

#endif
