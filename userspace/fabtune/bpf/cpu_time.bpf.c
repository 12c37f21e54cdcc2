// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * For whom the only CPU of a lab guest works: the initiator, the target, the path between them, or neither.
 *
 * A thread belongs to an end by its name, a work item by the module of its function.  Interrupts for packets belong to
 * the path, except while a packet is handed to the end that it is addressed to.  What is idle is a kind of its own;
 * hard interrupts belong to what they interrupt.
 */
#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/types.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define NET_TX_SOFTIRQ 2
#define NET_RX_SOFTIRQ 3

/* These and the layout of `times` stand in userspace/fabtune/lab/cpu_time.py as well. */
enum { OTHER, INITIATOR, TARGET, PATH, IDLE, KINDS };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u32);
} functions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} workers SEC(".maps");

/* Network of the target's addresses and its mask, in network order. */
struct network {
	__u32 address, mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct network);
} target SEC(".maps");

struct times {
	__u64 ns[KINDS];
	__u64 since;
	__u32 kind; /* what runs */
	__u32 thread; /* what runs when no softirq does */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct times);
} times SEC(".maps");

struct task_struct {
	int pid;
	char comm[16];
} __attribute__((preserve_access_index));

struct work_struct {
	void *func;
} __attribute__((preserve_access_index));

struct sk_buff {
	unsigned char *head;
	__u16 network_header;
} __attribute__((preserve_access_index));

static __always_inline struct times *all(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&times, &zero);
}

static __always_inline void switch_to(struct times *all, __u32 kind)
{
	__u64 now = bpf_ktime_get_ns();

	/* An interrupt may have been counted since the clock was read. */
	if (all->since && now > all->since && all->kind < KINDS)
		all->ns[all->kind] += now - all->since;
	all->since = now;
	all->kind = kind;
}

/* No memcmp: there is none to call. */
static __always_inline int begins(const char *name, const char *with, int bytes)
{
	for (int i = 0; i < bytes; i++)
		if (name[i] != with[i])
			return 0;
	return 1;
}

#define BEGINS(name, with) begins(name, with, sizeof(with) - 1)

static __always_inline __u32 kind_of_thread(struct task_struct *task)
{
	__u32 pid = task->pid, *work;
	const char *name = task->comm;

	if (!pid)
		return IDLE;
	if (BEGINS(name, "kworker/")) {
		work = bpf_map_lookup_elem(&workers, &pid);
		return work ? *work : OTHER;
	}
	if (BEGINS(name, "fio"))
		return INITIATOR;
	if (BEGINS(name, "iscsi_t") || BEGINS(name, "iscsi_np") || BEGINS(name, "tgtd"))
		return TARGET;
	return OTHER;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(thread_runs, _Bool preempt, struct task_struct *before, struct task_struct *after)
{
	struct times *seen = all();

	if (!seen)
		return 0;
	seen->thread = kind_of_thread(after);
	switch_to(seen, seen->thread);
	return 0;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(work_begins, struct work_struct *work)
{
	__u64 function = (__u64)work->func;
	__u32 *kind = bpf_map_lookup_elem(&functions, &function);
	__u32 pid = (__u32)bpf_get_current_pid_tgid();
	struct times *seen = all();

	if (!kind || !seen)
		return 0;
	bpf_map_update_elem(&workers, &pid, kind, BPF_ANY);
	seen->thread = *kind;
	switch_to(seen, seen->thread);
	return 0;
}

SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(work_ends)
{
	__u32 pid = (__u32)bpf_get_current_pid_tgid();
	struct times *seen = all();

	if (!seen)
		return 0;
	bpf_map_delete_elem(&workers, &pid);
	seen->thread = OTHER;
	switch_to(seen, seen->thread);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_begins, unsigned int number)
{
	struct times *seen = all();

	if (seen)
		switch_to(seen, number == NET_TX_SOFTIRQ || number == NET_RX_SOFTIRQ ? PATH : OTHER);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_ends, unsigned int number)
{
	struct times *seen = all();

	if (seen)
		switch_to(seen, seen->thread);
	return 0;
}

SEC("fentry/ip_local_deliver")
int BPF_PROG(packet_arrives, struct sk_buff *skb)
{
	struct times *seen = all();
	struct network *theirs;
	__u32 zero = 0, address = 0;

	theirs = bpf_map_lookup_elem(&target, &zero);
	if (!seen || !theirs)
		return 0;
	bpf_probe_read_kernel(&address, sizeof(address),
			      skb->head + skb->network_header + offsetof(struct iphdr, daddr));
	switch_to(seen, (address & theirs->mask) == theirs->address ? TARGET : INITIATOR);
	return 0;
}

SEC("fexit/ip_local_deliver")
int BPF_PROG(packet_is_in)
{
	struct times *seen = all();

	if (seen)
		switch_to(seen, PATH);
	return 0;
}

char licence[] SEC("license") = "GPL";
