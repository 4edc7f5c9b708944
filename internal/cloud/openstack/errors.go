package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"trainyard/internal/cloud"
	"trainyard/internal/fault"
)

// answer returns the status and message of an error that is the answer of an API; status 0 if there
// was no answer.
func answer(err error) (status int, message string) {
	// When a new token is needed, the library wraps both errors; the one from Keystone is relevant.
	var reauth *gophercloud.ErrUnableToReauthenticate
	if errors.As(err, &reauth) {
		err = reauth.ErrReauth
	}

	var got gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &got) {
		return 0, ""
	}

	// Nova: {"forbidden": {"code": 403, "message": …}}; Keystone: {"error": {…}}; Neutron: {"NeutronError": {…}}.
	var body map[string]struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(got.Body, &body) == nil {
		for _, part := range body {
			return got.Actual, part.Message
		}
	}

	return got.Actual, fmt.Sprintf("%.200s", got.Body)
}

// callFault returns the fault for a failed call without special handling. It is unknown whether the
// call was carried out, unless the credentials were rejected.
func callFault(ctx context.Context, doing string, err error) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return err
	}

	status, message := answer(err)
	switch {
	case ctx.Err() != nil:
		return fault.New(fault.Unavailable, "openstack_timeout", "OpenStack did not respond in time: %s", doing).
			WithCause(errors.Join(context.Cause(ctx), err))
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fault.New(fault.Denied, "openstack_denied", "permission denied by OpenStack: %s: %s", doing, message).
			WithRemedy("check the credentials and their roles in the project").WithCause(err)
	case status == http.StatusNotAcceptable:
		return fault.New(fault.Invalid, "openstack_too_old", "OpenStack is too old: its compute API does not support "+
			"microversion %s", Microversion).
			WithCause(err)
	case status != 0:
		return fault.New(fault.Unavailable, "openstack_failed", "OpenStack failed to %s: %d %s", doing, status, message).
			WithCause(err)
	}

	return fault.New(fault.Unavailable, "openstack_failed", "OpenStack did not respond: %s", doing).WithCause(err)
}

// buildFault says why a server could not be built. In any case there is no server now.
func buildFault(s *servers.Server, r *cloud.Request) error {
	code := cloud.CodeCapacity
	if quota(s.Fault.Message) {
		code = cloud.CodeQuota
	}

	return fault.New(fault.OverLimit, code, "server of flavor %s could not be built: %s", r.Offer.Type, why(s))
}

// quota reports whether a refusal is about a quota. Nova has no code for that, but the message says it for both
// kinds of quota.
func quota(message string) bool {
	m := strings.ToLower(message)
	return strings.Contains(m, "quota") || strings.Contains(m, "over limit") || strings.Contains(m, "over a limit")
}

// createFault returns the fault for a failed create, by what it means for the lease.
func createFault(ctx context.Context, err error) error {
	status, message := answer(err)
	switch {
	case (status == http.StatusForbidden || status == http.StatusRequestEntityTooLarge) && quota(message):
		return fault.New(fault.OverLimit, cloud.CodeQuota, "quota of the project exceeded: %s", message).WithCause(err)
	case status == http.StatusForbidden:
		return fault.New(fault.Denied, "openstack_denied", "permission denied by OpenStack: create a server: %s", message).
			WithCause(err)
	case status == http.StatusBadRequest, status == http.StatusNotFound, status == http.StatusConflict:
		return fault.New(fault.Invalid, "openstack_refused", "OpenStack rejected the server: %s", message).
			WithCause(err)
	}

	return callFault(ctx, "create a server", err)
}
