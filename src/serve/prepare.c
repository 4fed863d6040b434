/* The preparation's thread and its two lists; what is done to a job is in submit.c. */
#include "serve/prepare.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "serve/alloc.h"

struct list {
    struct sv_job *first, *last;
};

struct sv_prepare {
    const struct sv_facts *facts;
    pthread_t thread;
    bool running;
    int fd;
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t changed;
    struct list waiting, done;
    bool stop;
};

static void list_add(struct list *l, struct sv_job *job)
{
    job->queued = NULL;
    if (l->last)
        l->last->queued = job;
    else
        l->first = job;
    l->last = job;
}

static struct sv_job *list_take(struct list *l)
{
    struct sv_job *job = l->first;
    if (job) {
        l->first = job->queued;
        if (!l->first)
            l->last = NULL;
        job->queued = NULL;
    }
    return job;
}

static void wake(const struct sv_prepare *p)
{
    uint64_t one = 1;
    (void)!write(p->fd, &one, sizeof one); /* full means that it is readable, which is all that is wanted */
}

static void *main_of_thread(void *arg)
{
    struct sv_prepare *p = arg;
    pthread_setname_np(pthread_self(), "sn-prepare");
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->stop && !p->waiting.first)
            pthread_cond_wait(&p->changed, &p->lock);
        if (p->stop)
            break;
        struct sv_job *job = list_take(&p->waiting);
        pthread_mutex_unlock(&p->lock);
        sv_prepare_job(p->facts, job);
        pthread_mutex_lock(&p->lock);
        list_add(&p->done, job);
        wake(p);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct sv_prepare *sv_prepare_start(const struct sv_facts *facts, struct sennit_error *err)
{
    struct sv_prepare *p = sv_calloc(1, sizeof *p);
    *err = (struct sennit_error){SENNIT_NOMEM, "no memory for the preparation thread"};
    if (!p)
        return NULL;
    p->facts = facts;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (p->fd >= 0 && pthread_create(&p->thread, NULL, main_of_thread, p) == 0) {
        p->running = true;
        return p;
    }
    sv_prepare_free(p);
    return NULL;
}

void sv_prepare_stop(struct sv_prepare *p)
{
    if (!p->running)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    p->running = false;
    while (p->waiting.first)
        list_add(&p->done, list_take(&p->waiting));
}

void sv_prepare_free(struct sv_prepare *p)
{
    if (!p)
        return;
    sv_prepare_stop(p);
    if (p->fd >= 0)
        close(p->fd);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    sv_free(p);
}

int sv_prepare_fd(const struct sv_prepare *p)
{
    return p->fd;
}

void sv_prepare_push(struct sv_prepare *p, struct sv_job *job)
{
    pthread_mutex_lock(&p->lock);
    list_add(&p->waiting, job);
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

struct sv_job *sv_prepare_take(struct sv_prepare *p)
{
    uint64_t n;
    (void)!read(p->fd, &n, sizeof n);
    pthread_mutex_lock(&p->lock);
    struct sv_job *jobs = p->done.first;
    p->done = (struct list){0};
    pthread_mutex_unlock(&p->lock);
    return jobs;
}
