package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/fault"
)

// Body is a request or an answer that is nothing but its body.
type Body[T any] struct{ Body T }

// Router is where routes are registered: with the framework, which describes
// them, or as they are.
type Router struct {
	API huma.API
	Mux Mux
	Log *slog.Logger
}

// Mux is where routes are registered as they are.
type Mux interface {
	HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request))
}

// Fail turns an error into an answer and logs it if it is the yard's own fault.
func Fail(ctx context.Context, log *slog.Logger, err error) error {
	if k := fault.KindOf(err); (k == fault.Internal || k == fault.Unavailable) && !left(ctx) {
		log.ErrorContext(ctx, "request failed", "error", err, "kind", k)
	}

	return ToProblem(err)
}

// left reports whether the caller disconnected: an interrupted request is not a failure.
func left(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// Plain registers a handler that reads or writes bytes as they are, and adds
// it to the description. identify finds out who asks and puts it into the
// context that handle gets.
func (rt Router) Plain(
	op huma.Operation,
	identify func(r *http.Request) (context.Context, error),
	handle func(w http.ResponseWriter, r *http.Request) error,
) {
	for _, name := range pathNames(op.Path) {
		op.Parameters = append(
			op.Parameters,
			&huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		)
	}

	op.Responses = map[string]*huma.Response{
		"200":     {Description: "OK", Content: map[string]*huma.MediaType{"application/octet-stream": {}}},
		"default": {Description: "Error", Content: map[string]*huma.MediaType{"application/problem+json": {}}},
	}

	if op.Method != http.MethodGet {
		op.RequestBody = &huma.RequestBody{
			Required: true,
			Content:  map[string]*huma.MediaType{"application/octet-stream": {}},
		}
	}

	rt.API.OpenAPI().AddOperation(&op)
	rt.Mux.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		ctx, err := identify(r)
		if err == nil {
			err = handle(w, r.WithContext(ctx))
		}

		if err != nil {
			if k := fault.KindOf(err); (k == fault.Internal || k == fault.Unavailable) && !left(ctx) {
				rt.Log.ErrorContext(ctx, "request failed", "path", r.URL.Path, "error", err, "cause", errors.Unwrap(err))
			}

			WriteProblem(w, err)
		}
	})
}

// pathNames returns the names in braces of a path.
func pathNames(path string) []string {
	var names []string
	for i := 0; i < len(path); i++ {
		if path[i] != '{' {
			continue
		}

		start := i + 1

		for path[i] != '}' {
			i++
		}

		names = append(names, path[start:i])
	}

	return names
}
