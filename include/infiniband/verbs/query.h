/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls on devices and open devices: finding, opening, asking, events, fork, names of values. Part of
 * <infiniband/verbs.h>.
 *
 * Unless a comment says otherwise, calls that give an int return 0 or an errno value, and calls that give a
 * pointer return NULL with errno set.
 */
#ifndef INFINIBAND_VERBS_QUERY_H
#define INFINIBAND_VERBS_QUERY_H

#include <string.h>
#include <infiniband/verbs/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The devices that exist now, as an array ended by NULL; *num_devices gets their number unless num_devices
 * is NULL. No device is a success. Release with ibv_free_device_list(). EPERM, ENOMEM, ENOSYS.
 * ibv_get_device_list(3)
 */
struct ibv_device **ibv_get_device_list(int *num_devices);

/*
 * Release the array. Devices that are not open then cease to exist for the program, so open first, free
 * afterwards. ibv_get_device_list(3)
 */
void ibv_free_device_list(struct ibv_device **list);

/* The name, such as "vb_eth0"; lives as long as the device. ibv_get_device_name(3) */
const char *ibv_get_device_name(struct ibv_device *device);

/*
 * A number that stays with the device while the system runs, or -1 if there is none. ibv_get_device_index(3)
 */
int ibv_get_device_index(struct ibv_device *device);

/* The node GUID in network order; 0 if it cannot be read. ibv_get_device_guid(3) */
__be64 ibv_get_device_guid(struct ibv_device *device);

/* Open a device. The context lives until ibv_close_device() and keeps the device alive. ibv_open_device(3) */
struct ibv_context *ibv_open_device(struct ibv_device *device);

/*
 * Close a context. Objects that still exist on it are not released for the program. 0 or -1.
 * ibv_open_device(3)
 */
int ibv_close_device(struct ibv_context *context);

/* Open the device behind cmd_fd, a duplicate of another process' context->cmd_fd. ibv_import_device(3) */
struct ibv_context *ibv_import_device(int cmd_fd);

/*
 * Wait for the next asynchronous event; reads context->async_fd, so O_NONBLOCK and poll(2) work on that.
 * Each event is given back with ibv_ack_async_event(). 0 or -1 with errno (EAGAIN). ibv_get_async_event(3)
 */
int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);

/*
 * Give an event back. Destroying an object waits until all events about it are given back.
 * ibv_get_async_event(3)
 */
void ibv_ack_async_event(struct ibv_async_event *event);

/* Limits and identity of the device. ibv_query_device(3) */
int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *device_attr);

/*
 * All that is known of the device; members that the library does not know are 0. A non-null input must have
 * comp_mask 0 (EINVAL). Without the extended call, orig_attr alone is filled. ibv_query_device_ex(3)
 */
static inline int ibv_query_device_ex(struct ibv_context *context,
				      const struct ibv_query_device_ex_input *input,
				      struct ibv_device_attr_ex *attr)
{
	int err;

	if (input && input->comp_mask)
		return EINVAL;
	err = verbs_call_op_(context, query_device_ex, context, input, attr, sizeof(*attr));
	if (err != EOPNOTSUPP && err != ENOSYS)
		return err;
	memset(attr, 0, sizeof(*attr));
	return ibv_query_device(context, &attr->orig_attr);
}

/*
 * Read the device's clock, as values->comp_mask asks; on return that says what was read.
 * ibv_query_rt_values_ex(3)
 */
static inline int ibv_query_rt_values_ex(struct ibv_context *context, struct ibv_values_ex *values)
{
	return verbs_call_op_(context, query_rt_values, context, values);
}

/*
 * The exported function fills the structure as old programs know it, without port_cap_flags2. Use the macro
 * below.
 */
int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct _compat_ibv_port_attr *port_attr);

/* The state of port port_num, counted from 1. EINVAL: no such port. ibv_query_port(3) */
static inline int ___ibv_query_port(struct ibv_context *context, uint8_t port_num,
				    struct ibv_port_attr *port_attr)
{
	struct verbs_context *ext = verbs_get_ctx_op(context, query_port);

	if (ext)
		return ext->query_port(context, port_num, port_attr, sizeof(*port_attr));
	memset(port_attr, 0, sizeof(*port_attr));
	return ibv_query_port(context, port_num, (struct _compat_ibv_port_attr *)(void *)port_attr);
}
#define ibv_query_port(context, port_num, port_attr)	___ibv_query_port(context, port_num, port_attr)

/* Row index of the port's GID table; an unused row reads as zero. 0 or -1 with errno. ibv_query_gid(3) */
int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid);

/* What the inline calls below stand on: entry_size is the caller's sizeof(struct ibv_gid_entry). */
int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size);
ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries,
			     uint32_t flags, size_t entry_size);

/* Row gid_index with its type and interface. flags must be 0. ENODATA: unused row. ibv_query_gid_ex(3) */
static inline int ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
				   struct ibv_gid_entry *entry, uint32_t flags)
{
	return _ibv_query_gid_ex(context, port_num, gid_index, entry, flags, sizeof(*entry));
}

/*
 * All used rows of all ports, at most max_entries. Returns how many, or a negative errno value; flags must
 * be 0. ibv_query_gid_table(3)
 */
static inline ssize_t ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
					  size_t max_entries, uint32_t flags)
{
	return _ibv_query_gid_table(context, entries, max_entries, flags, sizeof(*entries));
}

/* Row index of the port's partition key table, in network order. 0 or -1 with errno. ibv_query_pkey(3) */
int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey);

/* The row that holds pkey (network order), or -1. ibv_get_pkey_index(3) */
int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey);

/* What fork(2) does to registered memory. ibv_is_fork_initialized(3) */
enum ibv_fork_status {
	IBV_FORK_DISABLED,
	IBV_FORK_ENABLED,
	IBV_FORK_UNNEEDED,
};

/* Make fork(2) safe for memory registered from now on. Call before any other verb. ibv_fork_init(3) */
int ibv_fork_init(void);

/* Whether ibv_fork_init() was called, or need not be. ibv_is_fork_initialized(3) */
enum ibv_fork_status ibv_is_fork_initialized(void);

/* Constant texts for values; a value out of range has a text too. ibv_event_type_str(3) */
const char *ibv_node_type_str(enum ibv_node_type node_type);
const char *ibv_port_state_str(enum ibv_port_state port_state);
const char *ibv_event_type_str(enum ibv_event_type event);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_QUERY_H */
