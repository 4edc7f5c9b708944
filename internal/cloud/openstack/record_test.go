//go:build openstack

package openstack_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
)

// recorder records requests and answers. Addresses are replaced by nova.test and the like; tokens,
// passwords and fields that are never read are left out.
type recorder struct {
	names map[string]string // of services, by host and port

	mu   sync.Mutex
	said []Exchange
}

func newRecorder(vars map[string]string) *recorder {
	rec := &recorder{names: map[string]string{}}
	for key, name := range map[string]string{"OS_AUTH_URL": "keystone", "NOVA_URL": "nova", "GLANCE_URL": "glance"} {
		if u, err := url.Parse(vars[key]); err == nil {
			rec.names[u.Host] = name
		}
	}

	return rec
}

func (rec *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	var asked []byte

	if r.Body != nil {
		var err error
		asked, err = io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}

		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(asked))
	}

	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}

	body, err := io.ReadAll(res.Body)
	if closed := res.Body.Close(); err == nil {
		err = closed
	}

	if err != nil {
		return nil, err
	}

	res.Body = io.NopCloser(bytes.NewReader(body))
	rec.mu.Lock()
	defer rec.mu.Unlock()

	rec.said = append(rec.said, Exchange{
		Service: rec.names[r.URL.Host], Method: r.Method, Path: r.URL.RequestURI(), Asked: rec.trimmed(asked),
		Status: res.StatusCode, Token: res.Header.Get("X-Subject-Token") != "", Answer: rec.trimmed(body),
	})

	return res, nil
}

// boring are fields that are left out: they are never read, or are secret.
var boring = map[string]bool{
	"links":     true,
	"adminPass": true,
	"hostId":    true,
	"audit_ids": true,
	"issued_at": true,
	"details":   true,
	"schema":    true,
}

func (rec *recorder) trimmed(body []byte) json.RawMessage {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}

	text := string(body)
	for host, name := range rec.names {
		text = strings.ReplaceAll(text, host, name+".test")
	}

	var tree any
	if json.Unmarshal([]byte(text), &tree) != nil {
		quoted, _ := json.Marshal(text) // a string always has a JSON form
		return quoted
	}

	trim(tree)
	data, _ := json.Marshal(tree) // it was JSON a moment ago

	return data
}

func trim(tree any) {
	switch v := tree.(type) {
	case map[string]any:
		for key, value := range v {
			if _, text := value.(string); key == "password" && text {
				v[key] = "PASSWORD"
				continue
			}

			if boring[key] {
				delete(v, key)
				continue
			}

			trim(value)
		}
	case []any:
		for _, value := range v {
			trim(value)
		}
	}
}

func (rec *recorder) write(t *testing.T, path string) {
	t.Helper()
	rec.mu.Lock()
	defer rec.mu.Unlock()

	var out bytes.Buffer
	out.WriteString("[\n")

	for i, e := range rec.said {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}

		out.Write(line)

		if i < len(rec.said)-1 {
			out.WriteString(",")
		}

		out.WriteString("\n")
	}

	out.WriteString("]\n")

	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
