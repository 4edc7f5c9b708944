package id_test

import (
	"strings"
	"testing"

	"trainyard/internal/id"
)

func TestHandles(t *testing.T) {
	t.Parallel()

	long := strings.Repeat("a", id.MaxName)
	for text, want := range map[string]id.Handle{
		"j7": {Job: "j7"}, "j7@last": {Name: "j7", Last: true}, "j07": {Name: "j07"}, "j7.2": {Name: "j7.2"},
		"resnet50": {Name: "resnet50"}, "resnet50@last": {Name: "resnet50", Last: true}, "@last": {Last: true},
		long + "@last": {Name: long, Last: true},
	} {
		got, ok := id.ParseHandle(text)
		if !ok || got != want || got.String() != text {
			t.Errorf("%q is %+v, %v, written %q; want %+v", text, got, ok, got, want)
		}

		if len(text) > id.MaxHandle {
			t.Errorf("%q is longer than a handle may be", text)
		}
	}

	for _, text := range []string{"", "@", "last@", "J7", "a b", "a@first", "@last@last", "a@last ", long + "a"} {
		if got, ok := id.ParseHandle(text); ok {
			t.Errorf("%q is taken for the handle %+v", text, got)
		}
	}
}
