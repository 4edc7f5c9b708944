package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// elementCount is the size of the largest array that a job file may have.
const elementCount = 10_000

// Two clients submit the same array of 10,000 elements under one key while the server is killed, each time a little
// later. All elements are stored or none, and once the server is back there is one array for the key.
func TestAnArrayIsStoredWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	one, two := y.client(t), y.client(t)

	request := api.SubmitRequest{File: fmt.Sprintf("name: sweep\nrun: train {{array.value}}\narray: 0..%d%%4\n",
		elementCount-1)}
	begun := time.Now()
	submitAgain(t, one, request, "measured")
	length := time.Since(begun) // the kills are spread over such a time, and a little more
	y.succeed(t, "cancel", string(activeArrays(t, one)[0].ID))

	const rounds = 6
	whole, none := 0, 0

	for round := range rounds {
		key := fmt.Sprintf("round-%d", round)

		var group sync.WaitGroup
		for _, client := range []*api.Client{one, two} {
			group.Go(func() {
				_, _ = client.Submit(t.Context(), request, key) // the kill may take its answer away
			})
		}

		time.Sleep(length * time.Duration(round+1) / (rounds - 2))

		if err := y.Server().Kill(); err != nil {
			t.Fatal(err)
		}

		group.Wait()

		if err := y.StartServer(); err != nil {
			t.Fatal(err)
		}

		if err := y.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}

		switch stored := activeArrays(t, one); len(stored) {
		case 0:
			none++
		case 1:
			whole++

			if got := stored[0].Count(job.StatusPending); got != elementCount {
				t.Fatalf("after kill %d there are %d elements", round, got)
			}
		default:
			t.Fatalf("after kill %d there are %d arrays", round, len(stored))
		}

		for _, client := range []*api.Client{one, two} {
			submitAgain(t, client, request, key)
		}

		stored := activeArrays(t, two)
		if len(stored) != 1 || stored[0].Count(job.StatusPending) != elementCount {
			t.Fatalf("submitted again after kill %d, there are %d arrays", round, len(stored))
		}

		array := string(stored[0].ID)
		lines := strings.Split(strings.TrimSpace(y.succeed(t, "jobs", "--active").out), "\n")
		if len(lines) != 2 || !strings.Contains(lines[1], array) || !strings.Contains(lines[1], "10000 elements") &&
			!strings.Contains(lines[1], "10,000 elements") {
			t.Errorf("the array is listed as %q", lines)
		}

		if got := y.succeed(t, "jobs", "--array", array, "--counts").out; !strings.Contains(got, "PENDING") {
			t.Errorf("its elements are counted as %q", got)
		}

		y.succeed(t, "cancel", array)

		if left := activeArrays(t, one); len(left) != 0 {
			t.Errorf("after its cancellation the array is %+v", left[0])
		}
	}

	t.Logf("stored when the server was killed: %d, not stored: %d", whole, none)
}

// client returns a client of the API with a token of its own.
func (y *yard) client(t *testing.T) *api.Client {
	t.Helper()

	if err := y.Trust(t.Context()); err != nil {
		t.Fatal(err)
	}

	token := strings.TrimSpace(y.succeed(t, "tokens", "create", "-q").out)
	client, err := y.Client(token)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(client.Close)

	return client
}

// activeArrays lists the arrays that have not ended.
func activeArrays(t *testing.T, client *api.Client) []api.Array {
	t.Helper()
	page, err := client.Arrays(t.Context(), api.ArrayFilter{Active: true})
	if err != nil {
		t.Fatal(err)
	}

	return page.Arrays
}

// submitAgain submits until the server answers: a connection that the kill broke may still be in use.
func submitAgain(t *testing.T, client *api.Client, request api.SubmitRequest, key string) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for {
		_, err := client.Submit(ctx, request, key)
		if err == nil {
			return
		}
		if fault.KindOf(err) != fault.Unavailable || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}
