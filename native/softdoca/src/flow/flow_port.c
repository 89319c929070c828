// SPDX-License-Identifier: Apache-2.0
/* The library's settings, and its ports. The errors are guesses where doca_flow.h names no others. */
#include <string.h>

#include "flow.h"

struct doca_flow_cfg {
	struct object o;
	uint16_t pipe_queues; /* 0: not set */
};

struct doca_flow_port_cfg {
	struct object o;
	struct doca_dev *dev;
};

#define CHECK_CFG(c)	  CHECK_OBJECT(c, OBJECT_FLOW_CFG, "a flow configuration")
#define CHECK_PORT_CFG(c) CHECK_OBJECT(c, OBJECT_FLOW_PORT_CFG, "a port configuration")

static bool initialized;
static uint16_t pipe_queues; /* 0: any */
static struct doca_flow_port *ports;

doca_error_t doca_flow_cfg_create(struct doca_flow_cfg **cfg)
{
	CHECK_OUT(cfg);
	struct doca_flow_cfg *c = softdoca_object_new(OBJECT_FLOW_CFG, sizeof *c);
	if (!c)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a configuration");
	*cfg = c;
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_cfg_destroy(struct doca_flow_cfg *cfg)
{
	CHECK_CFG(cfg);
	softdoca_object_free(cfg);
	return DOCA_SUCCESS;
}

SETTER(doca_flow_cfg_set_pipe_queues, CHECK_CFG, struct doca_flow_cfg, uint16_t, pipe_queues)

doca_error_t doca_flow_cfg_set_mode_args(struct doca_flow_cfg *cfg, const char *mode_args)
{
	CHECK_CFG(cfg);
	CHECK_OUT(mode_args);
	if (strncmp(mode_args, "vnf", 3) || (mode_args[3] && mode_args[3] != ','))
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "mode '%s': the known one is vnf",
			      mode_args);
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_cfg_set_nr_counters(struct doca_flow_cfg *cfg, uint32_t nr_counters)
{
	CHECK_CFG(cfg);
	(void)nr_counters;
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_init(struct doca_flow_cfg *cfg)
{
	CHECK_CFG(cfg);
	if (initialized)
		return REFUSE(DOCA_ERROR_ALREADY_EXIST, "doca_flow_init() was called before");
	initialized = true;
	pipe_queues = cfg->pipe_queues;
	return DOCA_SUCCESS;
}

doca_error_t flow_check_queue(uint16_t pipe_queue, const char *func)
{
	if (!pipe_queues || pipe_queue < pipe_queues)
		return DOCA_SUCCESS;
	return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE, "pipe queue %u: there are %u", pipe_queue,
			  pipe_queues);
}

void doca_flow_destroy(void)
{
	while (ports)
		doca_flow_port_stop(ports);
	initialized = false;
}

/* ---- ports ---- */

doca_error_t doca_flow_port_cfg_create(struct doca_flow_port_cfg **cfg)
{
	CHECK_OUT(cfg);
	struct doca_flow_port_cfg *c = softdoca_object_new(OBJECT_FLOW_PORT_CFG, sizeof *c);
	if (!c)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a configuration");
	*cfg = c;
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_port_cfg_destroy(struct doca_flow_port_cfg *cfg)
{
	CHECK_PORT_CFG(cfg);
	softdoca_object_free(cfg);
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_port_cfg_set_port_id(struct doca_flow_port_cfg *cfg, uint16_t port_id)
{
	CHECK_PORT_CFG(cfg);
	(void)port_id;
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_port_cfg_set_devargs(struct doca_flow_port_cfg *cfg, const char *devargs)
{
	CHECK_PORT_CFG(cfg);
	CHECK_OUT(devargs);
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_port_cfg_set_dev(struct doca_flow_port_cfg *cfg, void *dev)
{
	CHECK_PORT_CFG(cfg);
	CHECK_OBJECT(dev, OBJECT_DEV, "an open device");
	cfg->dev = dev;
	return DOCA_SUCCESS;
}

static bool has_port(const struct doca_dev *dev)
{
	for (const struct doca_flow_port *p = ports; p; p = p->next)
		if (p->dev == dev)
			return true;
	return false;
}

doca_error_t doca_flow_port_start(const struct doca_flow_port_cfg *cfg, struct doca_flow_port **port)
{
	CHECK_PORT_CFG(cfg);
	CHECK_OUT(port);
	if (!initialized || !object_is(cfg->dev, OBJECT_DEV))
		return REFUSE(DOCA_ERROR_BAD_STATE, initialized ? "the port has no open device"
								: "call doca_flow_init() first");
	if (has_port(cfg->dev))
		return REFUSE(DOCA_ERROR_ALREADY_EXIST, "%s has a port", cfg->dev->info.f.pci);
	struct doca_flow_port *p = softdoca_object_new(OBJECT_FLOW_PORT, sizeof *p);
	if (!p)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a port");
	doca_error_t error = softdoca_port_take(cfg->dev, &p->port);
	if (error) {
		softdoca_object_free(p);
		return error;
	}
	p->dev = cfg->dev;
	atomic_fetch_add(&p->dev->users, 1);
	p->next = ports;
	*port = ports = p;
	softdoca_port_set_steer(p->port, steer_frame, p);
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_port_stop(struct doca_flow_port *port)
{
	CHECK_FLOW_PORT(port);
	struct doca_flow_port **at = &ports;
	while (*at != port)
		at = &(*at)->next;
	*at = port->next;
	softdoca_port_set_steer(port->port, NULL, NULL);
	pipes_destroy(port);
	softdoca_port_drop(port->port);
	atomic_fetch_sub(&port->dev->users, 1);
	softdoca_object_free(port);
	return DOCA_SUCCESS;
}
