/* Filters that escape text for other languages. */
#include "text/template/run.h"

/* The escaped copy is the filter's own, so it may be marked in place. */
static bool escaped(struct sn_jrun *r, const struct sn_jstr *s, struct sn_jval *out)
{
    const struct sn_jstr *text;
    struct sn_jstr *copy;
    if (!sn_jsteps(r, s->len) || !sn_jescape(r, s, &text) || !(copy = sn_jnew(r, 1, sizeof *copy)))
        return false;
    *copy = *text;
    copy->markup = true;
    *out = sn_jstrv(copy);
    return true;
}

static bool f_escape(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s;
    if (c->self.type == SN_J_STR && c->self.u.s->markup) {
        *out = c->self;
        return true;
    }
    return sn_jstr_of(r, c->self, &s) && escaped(r, s, out);
}

static bool f_forceescape(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    const struct sn_jstr *s;
    return sn_jstr_of(r, c->self, &s) && escaped(r, s, out);
}

static bool stays_in_url(unsigned char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
           (ch && strchr("_.-~/", ch));
}

/* Text and numbers; a query string of pairs is refused. */
static bool f_urlencode(struct sn_jrun *r, const struct sn_jcall *c, struct sn_jval *out)
{
    static const char hex[] = "0123456789ABCDEF";
    const struct sn_jstr *s;
    struct sn_jsb b;
    if (c->self.type != SN_J_STR && !sn_jis_num(c->self))
        return sn_jfail(r, SENNIT_UNSUPPORTED, "urlencode of a %s is not supported, only of text",
                        sn_jtype_name(c->self));
    if (!sn_jstr_of(r, c->self, &s) || !sn_jsteps(r, s->len))
        return false;
    sn_jsb_init(&b, r);
    for (size_t i = 0; i < s->len; i++) {
        unsigned char ch = (unsigned char)s->data[i];
        const char code[3] = {'%', hex[ch >> 4], hex[ch & 15]};
        if (stays_in_url(ch))
            sn_jsb_part(&b, s, i, i + 1);
        else
            sn_jsb_bytes(&b, code, sizeof code, sn_jtrust(s, i));
    }
    return sn_jsb_val(&b, out);
}

static const struct sn_jbuiltin table[] = {
    {"e", f_escape, "", 0},
    {"escape", f_escape, "", 0},
    {"forceescape", f_forceescape, "", 0},
    {"urlencode", f_urlencode, "", 0},
};
const struct sn_jtable sn_jfilters_markup = {table, SN_ARRAY_LEN(table)};
