package httpapi

import (
	"context"
	"net"
	"net/http"
	"strings"

	"trainyard/internal/id"
)

// Record is what is known of a request for the audit record: from where it comes and, as soon as that is known, who
// sends it. It belongs to the goroutine that answers the request.
type Record struct {
	Address string
	Actor   string // as in events; "" until the caller is known
	Token   id.Token
	// Hidden is set where the caller is told that something does not exist because it is not for them.
	Hidden bool
}

type recordKey struct{}

// WithRecord adds the record of a request to its context. forwarded says that another server of the yard passes the
// request on, and knows from where it comes.
func WithRecord(r *http.Request, forwarded bool) (*http.Request, *Record) {
	record := &Record{Address: r.RemoteAddr}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		record.Address = host
	}

	if from := r.Header.Values("X-Forwarded-For"); forwarded && len(from) > 0 {
		list := strings.Split(from[len(from)-1], ",") // what the server added comes last
		record.Address = strings.TrimSpace(list[len(list)-1])
	}

	return r.WithContext(context.WithValue(r.Context(), recordKey{}, record)), record
}

// RecordOf returns the record of a request; an empty one outside of requests.
func RecordOf(ctx context.Context) *Record {
	if r, ok := ctx.Value(recordKey{}).(*Record); ok {
		return r
	}

	return &Record{}
}
