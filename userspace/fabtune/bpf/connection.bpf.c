// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Gives the connections of storage portals their own socket options, and nobody else's.
 *
 * portal_options runs at connection events only: before the SYN of a connection to a portal (the window's scale is
 * chosen right behind it), and when a target has accepted one.  portal_connections walks the connections of a network
 * namespace that exist: it tells what each one's options are and sets the one that `order` names.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SOL_TCP 6
#define SO_SNDBUF 7
#define SO_RCVBUF 8
#define SO_MAX_PACING_RATE 47
#define TCP_CONGESTION 13
#define TCP_NOTSENT_LOWAT 25
#define TCP_ESTABLISHED 1

/* The verifier wants words of the context read one by one; clang would read two at once. */
#define WORD(place) (*(volatile __u32 *)&(place))

enum { INITIATOR, TARGET };
enum { NOTHING, PACING, NOTSENT_LOWAT };

/* The layouts of these four stand in userspace/fabtune/host/portal_options.py as well. */
struct portal {
	__u8 address[16]; /* IPv4 as ::ffff:a.b.c.d; all zero is any address of a target */
	__u64 netns;
	__u16 port;
	__u16 role;
	__u32 unused;
};

struct options {
	__u32 sndbuf, rcvbuf, pacing, notsent_lowat; /* 0: as it comes */
	char congestion[16];
};

/* What to set of the connections of one portal; nothing where they are only to be looked at. */
struct order {
	struct portal portal;
	__u32 option;
	__u32 value;
};

struct connection {
	struct options options;
	__s32 error; /* of what was ordered */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct portal);
	__type(value, struct options);
} portals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct order);
} order SEC(".maps");

/* What of the kernel's types the iterator looks at. */
struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct in6_addr {
		__u8 bytes[16];
	} skc_v6_daddr, skc_v6_rcv_saddr;
} __attribute__((preserve_access_index));

struct tcp_sock;
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} __attribute__((preserve_access_index));

static __always_inline void put_ipv4(struct portal *portal, __u32 address)
{
	__builtin_memset(portal->address, 0, 10);
	portal->address[10] = portal->address[11] = 0xff;
	__builtin_memcpy(portal->address + 12, &address, 4);
}

static __always_inline void put_words(struct portal *portal, __u32 a, __u32 b, __u32 c, __u32 d)
{
	__u32 words[4] = { a, b, c, d };

	__builtin_memcpy(portal->address, words, sizeof(words));
}

static __always_inline struct options *wished(struct portal *portal)
{
	struct options *found = bpf_map_lookup_elem(&portals, portal);

	if (!found && portal->role == TARGET) {
		__builtin_memset(portal->address, 0, sizeof(portal->address));
		found = bpf_map_lookup_elem(&portals, portal);
	}
	return found;
}

static __always_inline void set(struct bpf_sock_ops *ctx, int level, int option, __u32 value)
{
	if (value)
		bpf_setsockopt(ctx, level, option, &value, sizeof(value));
}

SEC("sockops")
int portal_options(struct bpf_sock_ops *ctx)
{
	struct portal portal = {};
	struct options *wish, own;

	if (ctx->op == BPF_SOCK_OPS_TCP_CONNECT_CB) {
		portal.role = INITIATOR;
		portal.port = bpf_ntohl(ctx->remote_port);
		if (ctx->family == AF_INET)
			put_ipv4(&portal, ctx->remote_ip4);
		else
			put_words(&portal, WORD(ctx->remote_ip6[0]), WORD(ctx->remote_ip6[1]),
				  WORD(ctx->remote_ip6[2]), WORD(ctx->remote_ip6[3]));
	} else if (ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB) {
		portal.role = TARGET;
		portal.port = ctx->local_port;
		if (ctx->family == AF_INET)
			put_ipv4(&portal, ctx->local_ip4);
		else
			put_words(&portal, WORD(ctx->local_ip6[0]), WORD(ctx->local_ip6[1]),
				  WORD(ctx->local_ip6[2]), WORD(ctx->local_ip6[3]));
	} else {
		return 1;
	}
	portal.netns = bpf_get_netns_cookie(ctx);
	wish = wished(&portal);
	if (!wish)
		return 1;
	own = *wish;
	set(ctx, SOL_SOCKET, SO_SNDBUF, own.sndbuf);
	set(ctx, SOL_SOCKET, SO_RCVBUF, own.rcvbuf);
	set(ctx, SOL_SOCKET, SO_MAX_PACING_RATE, own.pacing);
	set(ctx, SOL_TCP, TCP_NOTSENT_LOWAT, own.notsent_lowat);
	if (own.congestion[0])
		bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, own.congestion, sizeof(own.congestion));
	return 1;
}

static __always_inline int same(const struct portal *one, const struct order *wanted)
{
	__u64 mine[2], theirs[2];

	__builtin_memcpy(mine, one->address, sizeof(mine));
	__builtin_memcpy(theirs, wanted->portal.address, sizeof(theirs));
	if (one->port != wanted->portal.port)
		return 0;
	return (mine[0] == theirs[0] && mine[1] == theirs[1]) ||
	       (wanted->portal.role == TARGET && !theirs[0] && !theirs[1]);
}

static __always_inline __u32 held(struct tcp_sock *sk, int level, int option)
{
	__u32 value = 0;

	return bpf_getsockopt(sk, level, option, &value, sizeof(value)) ? 0 : value;
}

static __always_inline int obey(struct tcp_sock *sk, struct order *wanted)
{
	if (wanted->option == PACING)
		return bpf_setsockopt(sk, SOL_SOCKET, SO_MAX_PACING_RATE, &wanted->value, sizeof(wanted->value));
	if (wanted->option == NOTSENT_LOWAT)
		return bpf_setsockopt(sk, SOL_TCP, TCP_NOTSENT_LOWAT, &wanted->value, sizeof(wanted->value));
	return 0;
}

SEC("iter/tcp")
int portal_connections(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct connection found = {};
	struct portal portal = {};
	struct order *wanted, own;
	struct tcp_sock *sk;
	__u32 zero = 0;

	wanted = bpf_map_lookup_elem(&order, &zero);
	if (!common || !wanted || common->skc_state != TCP_ESTABLISHED)
		return 0;
	own = *wanted;
	if (own.portal.role == INITIATOR) {
		portal.port = bpf_ntohs(common->skc_dport);
		if (common->skc_family == AF_INET)
			put_ipv4(&portal, common->skc_daddr);
		else
			bpf_core_read(portal.address, sizeof(portal.address), &common->skc_v6_daddr);
	} else {
		portal.port = common->skc_num;
		if (common->skc_family == AF_INET)
			put_ipv4(&portal, common->skc_rcv_saddr);
		else
			bpf_core_read(portal.address, sizeof(portal.address), &common->skc_v6_rcv_saddr);
	}
	if (!same(&portal, &own))
		return 0;
	sk = (struct tcp_sock *)bpf_skc_to_tcp_sock(common);
	if (!sk)
		return 0;
	found.error = obey(sk, &own);
	found.options.sndbuf = held(sk, SOL_SOCKET, SO_SNDBUF);
	found.options.rcvbuf = held(sk, SOL_SOCKET, SO_RCVBUF);
	found.options.pacing = held(sk, SOL_SOCKET, SO_MAX_PACING_RATE);
	found.options.notsent_lowat = held(sk, SOL_TCP, TCP_NOTSENT_LOWAT);
	bpf_getsockopt(sk, SOL_TCP, TCP_CONGESTION, found.options.congestion, sizeof(found.options.congestion));
	bpf_seq_write(ctx->meta->seq, &found, sizeof(found));
	return 0;
}

char licence[] SEC("license") = "GPL";
