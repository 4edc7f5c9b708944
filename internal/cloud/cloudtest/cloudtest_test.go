package cloudtest_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"trainyard/internal/cloud/cloudtest"
)

func TestContractCanBeKept(t *testing.T) {
	t.Parallel()
	cloudtest.Run(t, func(t *testing.T) cloudtest.Env {
		t.Helper()
		return newMemory("")
	})
}

// brokenName names, for the child process, what its provider does wrong.
const brokenName = "CLOUDTEST_BROKEN"

// TestBroken runs the contract on a provider that breaks it. It is run by the test below
// in a process of its own, because it fails.
func TestBroken(t *testing.T) {
	t.Parallel()
	broken := os.Getenv(brokenName)
	if broken == "" {
		return // asked for by nobody: the test below is the one that counts
	}

	cloudtest.Run(t, func(t *testing.T) cloudtest.Env {
		t.Helper()
		env := newMemory(broken)
		env.Patience = time.Second // what never comes is not waited for long

		switch broken {
		case "has no knob for a full account":
			env.NoQuota = nil
		case "excuses itself from what is no clause":
			env.Cannot = map[string]string{"no such clause": "made up"}
		}

		return env
	})
}

func TestContractFindsWhatBreaksIt(t *testing.T) {
	t.Parallel()

	for broken, clause := range map[string]string{
		"lists no leases":                       "a machine is listed with its lease",
		"loses the tag of the end":              "a machine carries yard, lease and end as tags from its first moment",
		"trims the script":                      "the boot script arrives unchanged",
		"creates twice":                         "the same lease twice is one machine where the world can",
		"does not mark spot":                    "a spot machine is marked as one",
		"calls a lost answer a refusal":         "a machine whose answer was lost is found by its lease",
		"does not say that it was refused":      "no machine to be had is a refusal",
		"takes a quota for a shortage":          "a full account is a refusal",
		"has no knob for a full account":        "a full account is a refusal",
		"calls an unknown type a shortage":      "a type that does not exist will never be had",
		"calls bad credentials an outage":       "a call without permission is denied",
		"tries a create again":                  "a cut connection is neither yes nor no",
		"calls an outage a refusal":             "a world that is down is neither yes nor no, and no empty list",
		"lists nothing in an outage":            "a world that is down is neither yes nor no, and no empty list",
		"asks although its time is over":        "a call whose time is over asks for nothing",
		"lists machines of others":              "the list shows machines of this yard alone",
		"lists no strays":                       "a machine without a lease is listed",
		"lists a hundred":                       "the list goes on after a hundred machines",
		"ends nothing":                          "a machine is ended, and others are not",
		"ends the newest machine":               "a machine is ended, and others are not",
		"ends a machine once only":              "ending a machine twice does no harm",
		"takes what it does not know for gone":  "a machine that the world does not know yet is not taken for gone",
		"does not say why a machine ended":      "a reclaimed spot machine is gone, and why",
		"excuses itself from what is no clause": "a yard without machines has an empty list",
	} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBroken$/^"+pattern(clause)+"$")
			child.Env = append(os.Environ(), brokenName+"="+broken)
			var out bytes.Buffer
			child.Stdout, child.Stderr = &out, &out
			err := child.Run()
			if err == nil || !strings.Contains(out.String(), "--- FAIL: TestBroken/"+strings.ReplaceAll(clause, " ", "_")) {
				t.Errorf("the contract does not find it: %v\n%s", err, out.String())
			}
		})
	}
}

// pattern is the name of a clause as go test matches it.
func pattern(clause string) string { return strings.ReplaceAll(clause, " ", "_") }
