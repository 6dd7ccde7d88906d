/* temporary: until src/host/udp.c and src/roce/gsi.c are there */
#include <errno.h>
#include "roce/gsi.h"
#define W __attribute__((weak))
W void vb_udp_set_handler(void (*p)(const struct vb_udp_packet *), void (*b)(void)) { }
W int vb_udp_open(void) { return 0; }
W bool vb_udp_is_open(void) { return false; }
W bool vb_udp_receive(void) { return false; }
W void vb_udp_watch(bool w) { }
W uint16_t vb_udp_source_port(bool v4, uint16_t w) { return w; }
W int vb_udp_send(const struct vb_inbox_addr *a, unsigned i, const void *b, size_t l, size_t s) { return -EAGAIN; }
W unsigned vb_udp_segments(void) { return 1; }
W int vb_udp_join(const struct in6_addr *g, unsigned i) { return -ENOSYS; }
W void vb_udp_leave(const struct in6_addr *g, unsigned i) { }
W void vb_gsi_receive(const struct vb_inbox_msg *m, unsigned i) { }
