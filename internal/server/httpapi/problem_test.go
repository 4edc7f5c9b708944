package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"trainyard/internal/fault"
)

func TestEveryKindOfFailureHasAStatus(t *testing.T) {
	t.Parallel()

	for _, k := range fault.Kinds() {
		p := ToProblem(fault.New(k, "c", "m"))
		if p.Status < 400 || p.Title == "" || p.Kind != string(k) {
			t.Errorf("%s: %+v", k, p)
		}
	}

	if p := ToProblem(fmt.Errorf("secret detail")); p.Status != 500 || strings.Contains(p.Detail, "secret") {
		t.Errorf("what is not meant for people is shown: %+v", p)
	}

	wrapped := fmt.Errorf("load: %w", fault.New(fault.NotFound, "c", "m").WithCause(fmt.Errorf("secret")))
	if p := ToProblem(wrapped); p.Status != 404 || p.Detail != "m" {
		t.Errorf("got %+v", p)
	}

	list := fault.List{fault.New(fault.Invalid, "a", "first"), fault.New(fault.Invalid, "b", "second")}
	if p := ToProblem(list); p.Detail != "first" || len(p.Errors) != 2 || p.Errors[1].Code != "b" {
		t.Errorf("got %+v", p)
	}

	if p := ToProblem(fault.List{list[0]}); len(p.Errors) != 0 || p.Code != "a" {
		t.Errorf("got %+v", p)
	}
}
