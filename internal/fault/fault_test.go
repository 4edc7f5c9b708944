package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"trainyard/internal/fault"
)

func TestSentenceHasPlaceAndRemedy(t *testing.T) {
	t.Parallel()
	e := fault.New(fault.Invalid, "bad_value", "%d is too many", 9)
	for want, err := range map[string]error{
		"9 is too many":                         e,
		"resources.gpus: 9 is too many":         e.WithField("resources.gpus"),
		"9 is too many (ask for at most 8)":     e.WithRemedy("ask for at most %d", 8),
		"line 3, column 7: g: 9 is too many":    &fault.Error{Message: "9 is too many", Field: "g", Line: 3, Column: 7},
		"9 is too many\ng: 9 is too many":       fault.List{e, e.WithField("g")},
		"":                                      fault.List{},
		"g: 9 is too many (fewer)":              e.WithField("g").WithRemedy("fewer").WithCause(errors.New("secret")),
		"line 1, column 1: 9 is too many (now)": &fault.Error{Message: "9 is too many", Line: 1, Column: 1, Remedy: "now"},
	} {
		if got := err.Error(); got != want {
			t.Errorf("sentence is %q, want %q", got, want)
		}
	}

	if e.Field != "" || e.Remedy != "" || e.Cause != nil {
		t.Errorf("the original was changed: %+v", e)
	}
}

func TestKindIsFoundThroughWrapping(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk full")
	e := fault.New(fault.Unavailable, "store_down", "cannot store").WithCause(cause)
	wrapped := fmt.Errorf("commit: %w", e)
	if got := fault.KindOf(wrapped); got != fault.Unavailable || !errors.Is(wrapped, cause) {
		t.Errorf("kind = %s, cause found: %v", got, errors.Is(wrapped, cause))
	}

	if got := fault.KindOf(cause); got != fault.Internal {
		t.Errorf("kind of a plain error = %s, want internal", got)
	}

	if got := fault.KindOf(nil); got != "" {
		t.Errorf("kind of nil = %q, want none", got)
	}

	list := fault.List{fault.New(fault.Invalid, "a", "a"), e}
	if got := fault.KindOf(list); got != fault.Invalid || !errors.Is(list, cause) {
		t.Errorf("kind of a list = %s; its causes are found: %v", got, errors.Is(list, cause))
	}

	if fault.List(nil).OrNil() != nil || list.OrNil() == nil {
		t.Error("an empty list must be no error, and another one must be one")
	}
}

func TestKindsAreListedOnce(t *testing.T) {
	t.Parallel()
	seen := map[fault.Kind]bool{}
	for _, k := range fault.Kinds() {
		if seen[k] || k == "" {
			t.Errorf("%q is listed twice or empty", k)
		}

		seen[k] = true
	}

	if len(seen) != 8 {
		t.Errorf("%d kinds, want 8", len(seen))
	}
}
