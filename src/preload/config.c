/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which sockets become rsockets, and how large. /etc/rdma/rsocket/preload_config has lines of "program
 * domain type protocol" (* is anything, # begins a comment). The environment has RS_SQ_SIZE, RS_RQ_SIZE,
 * RS_INLINE and RDMAV_FORK_SAFE. Without a line, all TCP sockets of all programs do. Datagram sockets do
 * only where a line says DGRAM or UDP, since their peers have to be rsockets.
 */
#include <netinet/in.h>
#include <strings.h>

#include "base/log.h"
#include "preload/preload.h"

#define CONFIG_FILE "/etc/rdma/rsocket/preload_config"

enum { MOST_RULES = 256, ANYTHING = -1 };

struct rule {
	char program[64];
	int domain, type, protocol;
};

static struct rule rules[MOST_RULES];
static unsigned num_rules;
static int send_queue, receive_queue, inline_bytes;
static bool serves_forks;

struct word {
	const char *text;
	int value;
};

/* With or without the prefix. False: no such word. */
static bool read_word(const char *text, const char *prefix, const struct word *words, size_t n, int *value)
{
	*value = ANYTHING;
	if (!strcmp(text, "*"))
		return true;
	if (!strncasecmp(text, prefix, strlen(prefix)))
		text += strlen(prefix);
	for (size_t i = 0; i < n; i++) {
		*value = words[i].value;
		if (!strcasecmp(text, words[i].text))
			return true;
	}
	return false;
}

/* False: it is no rule, and neither empty nor a comment. */
static bool read_line(const char *line)
{
	static const struct word domains[] = { { "INET", AF_INET }, { "INET6", AF_INET6 } };
	static const struct word types[] = { { "STREAM", SOCK_STREAM }, { "DGRAM", SOCK_DGRAM } };
	static const struct word protocols[] = { { "TCP", IPPROTO_TCP }, { "UDP", IPPROTO_UDP } };
	struct rule *r = &rules[num_rules];
	char domain[16], type[16], protocol[16];

	line += strspn(line, " \t\r\n");
	if (!*line || *line == '#')
		return true;
	if (sscanf(line, "%63s %15s %15s %15s", r->program, domain, type, protocol) != 4)
		return false;
	if (!strncasecmp(domain, "PF_", 3))
		memcpy(domain, "AF", 2);
	if (!read_word(domain, "AF_", domains, VB_ARRAY_LEN(domains), &r->domain) ||
	    !read_word(type, "SOCK_", types, VB_ARRAY_LEN(types), &r->type) ||
	    !read_word(protocol, "IPPROTO_", protocols, VB_ARRAY_LEN(protocols), &r->protocol))
		return false;
	num_rules++;
	return true;
}

static void read_rules(FILE *f, const char *name)
{
	char line[256];

	for (unsigned n = 1; num_rules < MOST_RULES && fgets(line, sizeof(line), f); n++)
		if (!read_line(line))
			vb_explain_line(name, "line %u is not \"program domain type protocol\", and is left out",
					n);
}

static int number_from(const char *name)
{
	const char *text = getenv(name);

	return text ? atoi(text) : 0;
}

static void read_all(void)
{
	const char *setting = getenv("VERBATIM_SOCKETS_CONFIG");
	const char *name = setting ?: CONFIG_FILE;
	FILE *f = fopen(name, "re");

	if (!f && setting)
		vb_explain_line("VERBATIM_SOCKETS_CONFIG", "%s: %s; so all TCP sockets count", setting,
				strerror(errno));

	if (f) {
		read_rules(f, name);
		fclose(f);
	}
	send_queue = number_from("RS_SQ_SIZE");
	receive_queue = number_from("RS_RQ_SIZE");
	inline_bytes = number_from("RS_INLINE");
	serves_forks = number_from("RDMAV_FORK_SAFE");
}

static void read_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_all);
}

static bool fits(int rule, int value) { return rule == ANYTHING || rule == value; }

static bool matches(const struct rule *r, int domain, int type, int protocol)
{
	if (type == SOCK_DGRAM && r->type != SOCK_DGRAM && r->protocol != IPPROTO_UDP)
		return false;
	return fits(r->domain, domain) && fits(r->type, type) && fits(r->protocol, protocol) &&
	       (!strcmp(r->program, "*") ||
		!strncasecmp(r->program, program_invocation_short_name, strlen(r->program)));
}

bool vb_is_wanted(int domain, int type, int protocol)
{
	int usual = type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;

	if ((domain != AF_INET && domain != AF_INET6) || (type != SOCK_STREAM && type != SOCK_DGRAM) ||
	    (protocol && protocol != usual))
		return false;
	read_once();
	for (unsigned i = 0; i < num_rules; i++)
		if (matches(&rules[i], domain, type, usual))
			return true;
	return !num_rules && type == SOCK_STREAM;
}

bool vb_serves_forks(void)
{
	read_once();
	return serves_forks;
}

static void set_size(int rs, int name, int value)
{
	if (value)
		(void)rsetsockopt(rs, SOL_RDMA, name, &value, sizeof(value));
}

void vb_apply_sizes(int rs)
{
	read_once();
	set_size(rs, RDMA_SQSIZE, send_queue);
	set_size(rs, RDMA_RQSIZE, receive_queue);
	set_size(rs, RDMA_INLINE, inline_bytes);
}
