// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How long iSCSI's own queues keep what is to be sent, on either end, until the socket has all of it.
 *
 * The initiator's (libiscsi, iscsi_tcp): from a command's coming, or an R2T's, until what it may send has been given
 * to the socket.  The target's (LIO): from where a command is done until its answer, a read's data included, has been.
 * Neither has a tracepoint.  Each sum is of one session or connection, and one direction.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define AF_INET 2

enum { READ, WRITE };

/* The layouts of these two stand in userspace/fabtune/measure/queue_times.py as well. */
struct whose {
	__u8 address[16]; /* the initiator's as the target has it, IPv4 as ::ffff:a.b.c.d; or a SCSI host's number */
	__u16 port;
	__u16 local_port;
	__u32 way;
};

struct times {
	__u64 commands;
	__u64 queued_ns; /* until the socket has all of it */
	__u64 sent_ns; /* the part of it in which it was being given to the socket */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct whose);
	__type(value, struct times);
} all SEC(".maps");

struct begun {
	__u64 queued;
	__u64 sent;
	__u64 again; /* for an R2T: no command of its own */
};

/*
 * By command.  One that is aborted stays until its memory is another's: there are no more than commands at a time.  Where
 * they are too many, some are not counted; pushing out the oldest would lose those that wait longest.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u64);
	__type(value, struct begun);
} under_way SEC(".maps");

/* What of the kernel's types is looked at. */
enum dma_data_direction {
	DMA_TO_DEVICE = 1,
	DMA_FROM_DEVICE = 2,
};

enum cmd_i_state_table {
	ISTATE_SEND_DATAIN = 1,
	ISTATE_SEND_STATUS = 2,
};

struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	__be32 skc_daddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
} __attribute__((preserve_access_index));

struct socket {
	struct sock *sk;
} __attribute__((preserve_access_index));

struct Scsi_Host {
	unsigned int host_no;
} __attribute__((preserve_access_index));

struct scsi_device {
	struct Scsi_Host *host;
} __attribute__((preserve_access_index));

struct scsi_cmnd {
	struct scsi_device *device;
	enum dma_data_direction sc_data_direction;
} __attribute__((preserve_access_index));

struct iscsi_task {
	struct scsi_cmnd *sc;
} __attribute__((preserve_access_index));

struct se_cmd {
	enum dma_data_direction data_direction;
} __attribute__((preserve_access_index));

struct iscsit_cmd {
	struct se_cmd se_cmd;
} __attribute__((preserve_access_index));

struct iscsit_conn {
	struct socket *sock;
} __attribute__((preserve_access_index));

static __always_inline void begin(const void *command, __u64 again)
{
	struct begun now = { bpf_ktime_get_ns(), 0, again };
	__u64 key = (__u64)command;

	/* What waits already waits on. */
	bpf_map_update_elem(&under_way, &key, &now, again ? BPF_NOEXIST : BPF_ANY);
}

static __always_inline void begin_to_send(const void *command)
{
	__u64 key = (__u64)command;
	struct begun *begun = bpf_map_lookup_elem(&under_way, &key);

	if (begun && !begun->sent)
		begun->sent = bpf_ktime_get_ns();
}

/* What waits is given to the socket in pieces: the time of being sent begins with the first. */
static __always_inline void end(const void *command, struct whose *whose)
{
	__u64 key = (__u64)command, now = bpf_ktime_get_ns();
	struct begun *begun = bpf_map_lookup_elem(&under_way, &key);
	struct times none = {}, *times;

	if (!begun)
		return;
	times = bpf_map_lookup_elem(&all, whose);
	if (!times) {
		bpf_map_update_elem(&all, whose, &none, BPF_NOEXIST);
		times = bpf_map_lookup_elem(&all, whose);
	}
	if (times) {
		__sync_fetch_and_add(&times->commands, !begun->again);
		__sync_fetch_and_add(&times->queued_ns, now - begun->queued);
		__sync_fetch_and_add(&times->sent_ns, begun->sent ? now - begun->sent : 0);
	}
	bpf_map_delete_elem(&under_way, &key);
}

SEC("fentry/iscsi_queuecommand")
int BPF_PROG(asked, struct Scsi_Host *host, struct scsi_cmnd *command)
{
	begin(command, 0);
	return 0;
}

SEC("fentry/iscsi_requeue_task")
int BPF_PROG(asked_again, struct iscsi_task *task)
{
	struct scsi_cmnd *command = BPF_CORE_READ(task, sc);

	if (command)
		begin(command, 1);
	return 0;
}

SEC("fentry/iscsi_tcp_task_xmit")
int BPF_PROG(sends, struct iscsi_task *task)
{
	struct scsi_cmnd *command = BPF_CORE_READ(task, sc);

	if (command)
		begin_to_send(command);
	return 0;
}

SEC("fexit/iscsi_tcp_task_xmit")
int BPF_PROG(has_sent, struct iscsi_task *task, int result)
{
	struct scsi_cmnd *command = BPF_CORE_READ(task, sc);
	struct whose whose = {};
	__u32 host;

	/* -EAGAIN: the socket is full, and it goes on later. */
	if (!command || result)
		return 0;
	host = BPF_CORE_READ(command, device, host, host_no);
	__builtin_memcpy(whose.address, &host, sizeof(host));
	whose.way = BPF_CORE_READ(command, sc_data_direction) == DMA_TO_DEVICE ? WRITE : READ;
	end(command, &whose);
	return 0;
}

SEC("fentry/lio_queue_data_in")
int BPF_PROG(data_is_there, struct se_cmd *command)
{
	begin(command, 0);
	return 0;
}

SEC("fentry/lio_queue_status")
int BPF_PROG(is_done, struct se_cmd *command)
{
	begin(command, 0);
	return 0;
}

static __always_inline const void *core_of(const struct iscsit_cmd *command)
{
	return (const char *)command + bpf_core_field_offset(struct iscsit_cmd, se_cmd);
}

SEC("fentry/iscsit_response_queue")
int BPF_PROG(answers, struct iscsit_conn *connection, struct iscsit_cmd *command, int state)
{
	const void *core = core_of(command);
	__u64 key = (__u64)core;

	/* An answer to something else, in the memory of a command that was aborted. */
	if (state != (int)bpf_core_enum_value(enum cmd_i_state_table, ISTATE_SEND_DATAIN) &&
	    state != (int)bpf_core_enum_value(enum cmd_i_state_table, ISTATE_SEND_STATUS))
		bpf_map_delete_elem(&under_way, &key);
	else
		begin_to_send(core);
	return 0;
}

SEC("fexit/iscsit_response_queue")
int BPF_PROG(has_answered, struct iscsit_conn *connection, struct iscsit_cmd *command)
{
	struct sock *sk = BPF_CORE_READ(connection, sock, sk);
	struct whose whose = {};
	__u32 address;

	whose.way = BPF_CORE_READ(command, se_cmd.data_direction) == DMA_FROM_DEVICE ? READ : WRITE;
	whose.port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	whose.local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET) {
		address = BPF_CORE_READ(sk, __sk_common.skc_daddr);
		whose.address[10] = whose.address[11] = 0xff;
		__builtin_memcpy(whose.address + 12, &address, sizeof(address));
	} else {
		BPF_CORE_READ_INTO(&whose.address, sk, __sk_common.skc_v6_daddr);
	}
	end(core_of(command), &whose);
	return 0;
}

char licence[] SEC("license") = "GPL";
