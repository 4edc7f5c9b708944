// Package httpapi is what the people's API and the agents' protocol have in
// common as HTTP: how errors become problem documents, live feeds are sent,
// bytes go up and down beside the framework, and routes are registered.
//
// The server's handlers (internal/server) and the agents'
// (internal/server/agentapi) stand on it. It knows nobody who asks and none of
// their resources. Only here are kinds of failure mapped to HTTP statuses.
package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
)

// statuses maps kinds of failure to HTTP. No other place does.
var statuses = map[fault.Kind]int{
	fault.Invalid:     http.StatusUnprocessableEntity,
	fault.NotFound:    http.StatusNotFound,
	fault.Conflict:    http.StatusConflict,
	fault.Denied:      http.StatusForbidden,
	fault.Unknown:     http.StatusUnauthorized,
	fault.OverLimit:   http.StatusTooManyRequests,
	fault.Unavailable: http.StatusServiceUnavailable,
	fault.Internal:    http.StatusInternalServerError,
}

// TooLarge is the code of what is over a limit on size.
const TooLarge = "too_large"

var _ huma.StatusError = (*api.Problem)(nil)

// The framework makes its own errors, for requests that do not fit the
// description, through this variable. Both are set before main begins, once, so
// that every error of the API has one shape.
var _ = func() bool {
	huma.NewError = frameworkProblem
	huma.DefaultArrayNullable = false // a list that is empty is sent as []
	return true
}()

// frameworkProblem turns an error of the framework into one of ours.
func frameworkProblem(status int, msg string, errs ...error) huma.StatusError {
	kind, code := fault.Invalid, "bad_request"

	switch status {
	case http.StatusNotFound:
		kind, code = fault.NotFound, "not_found"
	case http.StatusRequestEntityTooLarge:
		kind, code = fault.OverLimit, TooLarge
	case http.StatusInternalServerError:
		kind, code = fault.Internal, "internal"
	}

	p := &api.Problem{Title: http.StatusText(status), Status: status, Detail: msg, Code: code, Kind: string(kind)}
	for _, err := range errs {
		one := api.Problem{Title: p.Title, Status: status, Detail: err.Error(), Code: code, Kind: string(kind)}
		var d huma.ErrorDetailer
		if errors.As(err, &d) {
			detail := d.ErrorDetail()
			one.Detail, one.Field = detail.Message, fieldOf(detail.Location)
		}

		p.Errors = append(p.Errors, one)
	}

	if len(p.Errors) == 1 {
		p.Detail, p.Field, p.Errors = p.Errors[0].Detail, p.Errors[0].Field, nil
	}

	return p
}

// fieldOf names a field as our own errors do, without the part of the request it is in.
func fieldOf(location string) string {
	part, field, _ := strings.Cut(location, ".")
	switch part {
	case "body", "query", "path", "header":
		return field
	}

	return location
}

// ToProblem turns an error into an answer. What is not meant for people is
// replaced by a plain sentence; the log has it.
func ToProblem(err error) *api.Problem {
	var list fault.List
	if errors.As(err, &list) && len(list) > 1 {
		p := ToProblem(list[0])
		p.Detail = list[0].Message
		for _, e := range list {
			p.Errors = append(p.Errors, *ToProblem(e))
		}

		return p
	}

	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.New(fault.Internal, "internal", "internal server error").WithRemedy("see the server's log")
	}

	status := statuses[f.Kind]
	if f.Code == TooLarge { // waiting does not help
		status = http.StatusRequestEntityTooLarge
	}

	return &api.Problem{
		Title: http.StatusText(status), Status: status, Detail: f.Message, Code: f.Code, Kind: string(f.Kind),
		Field: f.Field, Line: f.Line, Column: f.Column, Remedy: f.Remedy,
	}
}

// TooOften is the error for who makes more requests than allowed.
func TooOften() error {
	return fault.New(fault.OverLimit, "too_often", "too many requests").
		WithRemedy("wait a second, or ask an admin for a higher limit")
}

// WriteProblem answers a plain handler's error.
func WriteProblem(w http.ResponseWriter, err error) {
	p := ToProblem(err)
	w.Header().Set("Content-Type", "application/problem+json")

	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}

	w.WriteHeader(p.Status)

	// The caller is gone if this fails; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(p)
}
