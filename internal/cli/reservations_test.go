package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func TestReservationsAreAddedAndListed(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	one := api.Reservation{
		ID: "r1", User: "ada", Nodes: []id.Node{"gpu-1"}, From: now.Add(30 * time.Minute), Until: now.Add(2 * time.Hour), By: "root",
		Notice: job.Duration(time.Hour),
	}
	y.answer("POST /api/v1/reservations", one)
	y.answer("GET /api/v1/reservations", api.ReservationList{Reservations: []api.Reservation{one}})

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "reservations", "add", "gpu-1", "--user", "ada", "--from", "2026-12-01T09:00", "--for",
		"8h"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	body, _ := y.sent("POST /api/v1/reservations")

	var sent api.ReservationRequest
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}

	from := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	if sent.From == nil || !sent.From.Equal(from) || !sent.Until.Equal(from.Add(8*time.Hour)) ||
		sent.Notice != job.Duration(time.Hour) || sent.User != "ada" || len(sent.Nodes) != 1 {
		t.Errorf("sent %+v", sent)
	}

	p = newPerson(t).at(t, y)
	if code := p.types(t.Context(), "reservations"); code != exit.OK ||
		!strings.Contains(p.stdout.String(), "closed to others") { // half an hour before, with a notice of an hour
		t.Errorf("exit code %d: %s%s", code, p.stdout, p.stderr)
	}

	for _, args := range []string{
		"add gpu-1 --user ada", "add gpu-1 --for 8h", "add --user ada --for 8h", "add gpu-1 --user ada --for soon",
		"add gpu-1 --user ada --for 1h --from noon",
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), append([]string{"reservations"}, strings.Fields(args)...)...); code != exit.Usage {
			t.Errorf("%s: exit code %d, want %d", args, code, exit.Usage)
		}
	}
}
