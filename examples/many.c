/* Many requests, read by one thread that sleeps until there is something to read: many MODEL.gguf PROMPT...
 *
 * The engine has a thread of its own and calls wake() after every step that gave something. wake() puts a byte into a
 * pipe, so that one poll() can wait for the engine and, in a program that has them, for its sockets. Which requests
 * have something is asked with sennit_request_poll; what they say is what each would have said alone. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sennit/sennit.h>

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* On the engine's thread: must return at once and must not call the library. A full pipe wakes the reader as well. */
static void wake(void *ctx)
{
    const int *pipe_fds = ctx;
    if (write(pipe_fds[1], "", 1) < 0)
        return;
}

/* Prints what request `i` has ready, without waiting. True when it has ended. */
static int drain(int i, struct sennit_request *request)
{
    struct sennit_error err;
    struct sennit_event event = {0};
    struct sennit_request_state state;
    sennit_request_poll(request, &state);
    for (size_t left = state.n_ready; left > 0; left--) {
        if (sennit_request_next_event(request, &event, 0, &err))
            die("event", err.message);
        if (event.n_text)
            printf("request %d: \"%.*s\"\n", i, (int)event.n_text, event.text);
        if (event.kind == SENNIT_EVENT_END)
            printf("request %d: %s after %zu tokens, digest %016llx\n", i, sennit_finish_name(event.finish),
                   event.n_generated, (unsigned long long)event.digest);
    }
    return event.kind == SENNIT_EVENT_END;
}

int main(int argc, char **argv)
{
    struct sennit_error err;
    struct sennit_model *model;
    struct sennit_engine *engine;
    struct sennit_load load;
    int n = argc - 2, open = 0, pipe_fds[2];
    if (n < 1)
        die("usage", "many MODEL.gguf PROMPT...");
    if (pipe(pipe_fds) || fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK) || fcntl(pipe_fds[1], F_SETFL, O_NONBLOCK))
        die("pipe", "the system has none");
    const struct sennit_engine_options options = {.notify = wake, .notify_ctx = pipe_fds};
    if (sennit_model_open(&model, argv[1], NULL, &err) || sennit_engine_create(&engine, model, &options, &err) ||
        sennit_engine_start(engine, &err))
        die("engine", err.message);

    struct sennit_request **requests = calloc((size_t)n, sizeof *requests); /* NULL: it has ended */
    if (!requests)
        die("memory", "none");
    for (; open < n; open++) {
        struct sennit_tokens prompt = {0};
        const char *text = argv[open + 2];
        if (sennit_tokenize(sennit_model_tokenizer(model), text, strlen(text), SENNIT_TOKENIZE_BOS, &prompt, &err) ||
            sennit_engine_submit(
                engine,
                &(struct sennit_request_options){.prompt = prompt.ids, .n_prompt = prompt.n_ids, .max_tokens = 16},
                &requests[open], &err))
            die("prompt", err.message);
        sennit_tokens_free(&prompt);
    }
    while (open > 0) {
        char bytes[64];
        struct pollfd wait = {.fd = pipe_fds[0], .events = POLLIN}; /* and the sockets */
        if (poll(&wait, 1, -1) < 0)
            die("poll", "failed");
        while (read(pipe_fds[0], bytes, sizeof bytes) > 0) /* before the requests are asked: no call goes unseen */
            ;
        for (int i = 0; i < n; i++)
            if (requests[i] && drain(i, requests[i])) {
                sennit_request_free(requests[i]);
                requests[i] = NULL;
                open--;
            }
    }
    sennit_engine_load(engine, &load);
    printf("%llu tokens in %llu steps\n", (unsigned long long)load.n_answer_tokens, (unsigned long long)load.n_steps);
    sennit_engine_free(engine); /* calls wake() if it has to end requests: the pipe is still there */
    sennit_model_free(model);
    free(requests);
    return close(pipe_fds[0]) | close(pipe_fds[1]);
}
