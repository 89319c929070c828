/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with file descriptors over a Unix socket; checks whether a process, or its address
 * space, still exists. */
#ifndef DG_SHARE_UNIX_SOCKET_H
#define DG_SHARE_UNIX_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Sends one message with n_fds (at most 2) file descriptors, without waiting, whatever the flags of
 * the socket. Returns the bytes sent, or -errno. */
ssize_t dg_unix_socket_send(int fd, const void *msg, size_t size, const int *fds, int n_fds);
/* Receives one message of at most `size` bytes and up to 2 file descriptors, which the caller then
 * owns (see peer_fds.h); *n_fds receives their number. Does not wait. Returns the bytes received, 0 at the end of the stream, or
 * -errno. */
ssize_t dg_unix_socket_recv(int fd, void *msg, size_t size, int *fds, int *n_fds);
/* pidfd_open(2). Returns the file descriptor, or -1 with errno set. */
int dg_pidfd_open(pid_t pid);
/* Whether the process behind pidfd has ended. False for pidfd -1. */
bool dg_pidfd_dead(int pidfd);
/* Opens /proc/PID/maps of another process. The file stays bound to the address space that the
 * process has at the time of the call. Returns -1 if that is not allowed, or if the process has
 * none. */
int dg_address_space_open(pid_t pid);
/* Whether no thread uses the address space any more: its process has ended or has executed another
 * program, and so has every process that shared it (CLONE_VM). False for maps_fd -1. */
bool dg_address_space_gone(int maps_fd);

#endif
