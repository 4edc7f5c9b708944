package agent

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestNoticesOfClouds reads the notice of each cloud from a service that answers as its metadata service does.
func TestNoticesOfClouds(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)
	at := now.Add(2 * time.Minute)

	aws := func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" &&
			r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds") != "":
			write(w, "secret")
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "secret":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodGet && r.URL.Path == "/latest/meta-data/spot/instance-action":
			write(w, `{"action": "terminate", "time": "2026-11-16T12:02:00Z"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}
	awsQuiet := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			write(w, "secret")
			return
		}

		w.WriteHeader(http.StatusNotFound)
	}
	gcp := func(answer string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/computeMetadata/v1/instance/preempted" || r.Header.Get("Metadata-Flavor") != "Google" {
				w.WriteHeader(http.StatusForbidden)
				return
			}

			write(w, answer)
		}
	}
	azure := func(events string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Header.Get("Metadata") != "true":
				w.WriteHeader(http.StatusBadRequest)
			case r.URL.Path == "/metadata/instance/compute/name":
				write(w, "vm-2")
			case r.URL.Path == "/metadata/scheduledevents":
				write(w, `{"DocumentIncarnation": 1, "Events": [`+events+`]}`)
			}
		}
	}
	broken := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }

	for name, tc := range map[string]struct {
		kind   string
		server http.HandlerFunc
		want   time.Time
		fails  bool
	}{
		"aws":               {"aws", aws, at, false},
		"aws, no notice":    {"aws", awsQuiet, time.Time{}, false},
		"aws does not work": {"aws", broken, time.Time{}, true},
		"gcp":               {"gcp", gcp("TRUE"), now.Add(30 * time.Second), false},
		"gcp, no notice":    {"gcp", gcp("FALSE"), time.Time{}, false},
		"azure": {"azure", azure(`{"EventType": "Preempt", "Resources": ["vm-1", "vm-2"],
			"NotBefore": "Mon, 16 Nov 2026 12:02:00 GMT"}`), at, false},
		"azure, under way": {"azure", azure(`{"EventType": "Preempt", "Resources": ["vm-2"], "NotBefore": ""}`), now, false},
		"azure, another machine": {"azure", azure(`{"EventType": "Preempt", "Resources": ["vm-1"],
			"NotBefore": "Mon, 16 Nov 2026 12:02:00 GMT"}`), time.Time{}, false},
		"azure, another event": {"azure", azure(`{"EventType": "Freeze", "Resources": ["vm-2"],
			"NotBefore": "Mon, 16 Nov 2026 12:02:00 GMT"}`), time.Time{}, false},
		"azure, no notice": {"azure", azure(""), time.Time{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(tc.server)
			t.Cleanup(s.Close)

			look, err := parseSpotNotice(tc.kind + "=" + s.URL)
			if err != nil {
				t.Fatal(err)
			}

			got, err := look(t.Context(), now)
			if !got.Equal(tc.want) || (err != nil) != tc.fails {
				t.Errorf("taken back at %v (%v), want %v", got, err, tc.want)
			}
		})
	}
}

func write(w http.ResponseWriter, text string) { _, _ = w.Write([]byte(text)) }

func TestANoticeInAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notice.json")

	look, err := parseSpotNotice("file=" + path)
	if err != nil {
		t.Fatal(err)
	}

	if at, err := look(t.Context(), time.Time{}); !at.IsZero() || err != nil {
		t.Errorf("without a file: %v, %v", at, err)
	}

	for text, want := range map[string]string{
		`{"action": "stop", "time": "2026-11-16T12:02:00Z"}`: "2026-11-16T12:02:00Z",
		`{}`: "",
		`no`: "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		at, err := look(t.Context(), time.Time{})
		if (err == nil) != (want != "") || err == nil && at.Format(time.RFC3339) != want {
			t.Errorf("%s: %v, %v", text, at, err)
		}
	}
}

func TestWhereNoticesAreReadIsChecked(t *testing.T) {
	t.Parallel()

	for text, ok := range map[string]bool{
		"": true, "aws": true, "gcp": true, "azure": true, "file=/run/notice": true, "file": false, "ibm": false, "=x": false,
	} {
		if _, err := parseSpotNotice(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
