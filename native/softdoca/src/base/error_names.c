// SPDX-License-Identifier: Apache-2.0
/* Names and descriptions of errors, and the mapping of dgkit's errors. */
#include <errno.h>

#include "base.h"

struct word {
	const char *name, *descr;
};

#define WORD(name, descr) [DOCA_##name] = {"DOCA_" #name, descr}
static const struct word words[] = {
	WORD(SUCCESS, "success"),
	WORD(ERROR_UNKNOWN, "unknown error"),
	WORD(ERROR_NOT_PERMITTED, "operation not permitted"),
	WORD(ERROR_IN_USE, "resource in use"),
	WORD(ERROR_NOT_SUPPORTED, "operation not supported"),
	WORD(ERROR_AGAIN, "temporarily unavailable, try again"),
	WORD(ERROR_INVALID_VALUE, "invalid argument"),
	WORD(ERROR_NO_MEMORY, "out of memory"),
	WORD(ERROR_INITIALIZATION, "initialization failed"),
	WORD(ERROR_TIME_OUT, "timed out"),
	WORD(ERROR_SHUTDOWN, "shut down"),
	WORD(ERROR_CONNECTION_RESET, "connection reset by the peer"),
	WORD(ERROR_CONNECTION_ABORTED, "connection aborted"),
	WORD(ERROR_CONNECTION_INPROGRESS, "connection in progress"),
	WORD(ERROR_NOT_CONNECTED, "not connected"),
	WORD(ERROR_NO_LOCK, "lock not acquired"),
	WORD(ERROR_NOT_FOUND, "not found"),
	WORD(ERROR_IO_FAILED, "data transfer failed"),
	WORD(ERROR_BAD_STATE, "invalid in this state"),
	WORD(ERROR_UNSUPPORTED_VERSION, "unsupported version"),
	WORD(ERROR_OPERATING_SYSTEM, "operating system error"),
	WORD(ERROR_DRIVER, "driver error"),
	WORD(ERROR_UNEXPECTED, "unexpected condition"),
	WORD(ERROR_ALREADY_EXIST, "already exists"),
	WORD(ERROR_FULL, "no space left"),
	WORD(ERROR_EMPTY, "empty"),
	WORD(ERROR_IN_PROGRESS, "in progress, not complete"),
	WORD(ERROR_TOO_BIG, "too large"),
	WORD(ERROR_AUTHENTICATION, "authentication failed"),
	WORD(ERROR_BAD_CONFIG, "invalid configuration"),
	WORD(ERROR_SKIPPED, "skipped"),
	WORD(ERROR_DEVICE_FATAL_ERROR, "fatal device error"),
};
#define N_WORDS (sizeof words / sizeof words[0])
/* DOCA API reference, Errors: the text of an unknown value is not NULL. */
static const struct word no_word = {"unrecognized error code", "unrecognized error code"};

static const struct word *word_of(doca_error_t error)
{
	return (uint32_t)error < N_WORDS ? &words[(uint32_t)error] : &no_word;
}

const char *doca_error_get_name(doca_error_t error)
{
	return word_of(error)->name;
}

const char *doca_error_get_descr(doca_error_t error)
{
	return word_of(error)->descr;
}

/* dgkit.h documents each errno of a control call. */
static const struct {
	int number;
	doca_error_t error;
} meanings[] = {
	{EINVAL, DOCA_ERROR_INVALID_VALUE},
	{ERANGE, DOCA_ERROR_INVALID_VALUE},
	{EBADMSG, DOCA_ERROR_INVALID_VALUE},
	{EMEDIUMTYPE, DOCA_ERROR_INVALID_VALUE},
	{EFAULT, DOCA_ERROR_INVALID_VALUE},
	{EACCES, DOCA_ERROR_NOT_PERMITTED},
	{EPERM, DOCA_ERROR_NOT_PERMITTED},
	{EAGAIN, DOCA_ERROR_AGAIN},
	{EBUSY, DOCA_ERROR_IN_USE},
	{EALREADY, DOCA_ERROR_IN_USE},
	{EOPNOTSUPP, DOCA_ERROR_NOT_SUPPORTED},
	{EXDEV, DOCA_ERROR_NOT_SUPPORTED},
	{ENODEV, DOCA_ERROR_NOT_FOUND},
	{ENOKEY, DOCA_ERROR_NOT_FOUND},
	{ESTALE, DOCA_ERROR_BAD_STATE},
	{EOWNERDEAD, DOCA_ERROR_BAD_STATE},
	{EPROTONOSUPPORT, DOCA_ERROR_UNSUPPORTED_VERSION},
	{ENOTCONN, DOCA_ERROR_NOT_CONNECTED},
	{ETIMEDOUT, DOCA_ERROR_TIME_OUT},
	{ETIME, DOCA_ERROR_TIME_OUT},
	{ENOMEM, DOCA_ERROR_NO_MEMORY},
	{EIO, DOCA_ERROR_IO_FAILED},
};

static doca_error_t meaning_of(int number)
{
	for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
		if (meanings[i].number == number)
			return meanings[i].error;
	return DOCA_ERROR_OPERATING_SYSTEM; /* EMFILE, ENFILE, ENOSPC: the system's own limits */
}

doca_error_t softdoca_failed(const char *func, int rc)
{
	doca_error_t error = rc < 0 ? meaning_of(-rc) : DOCA_ERROR_UNEXPECTED;
	return REFUSE_FOR(func, error, "%s: %s", doca_error_get_name(error),
			  rc < 0 ? dg_last_error() : "a call that failed gave no error");
}
