//go:build openstack

package openstack_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/cloud/openstack"
)

// These tests need Keystone, Nova, Placement and Glance. `make test-openstack` runs them; they
// start the services by scripts/setup-openstack.sh, which is too heavy for every run of CI.

var (
	record   = flag.Bool("record", false, "write down what is said in the scenario, for the tests that replay it")
	services = flag.String(
		"services",
		"",
		"folder of services that run already, started by scripts/setup-openstack.sh run",
	)
)

// lab is a running OpenStack, seen by its administrator.
type lab struct {
	vars  map[string]string
	nova  string
	token string
	count atomic.Int64 // of projects
}

var theLab *lab

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "openstack:", err)
		code = 1
	}

	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	dir := *services
	if dir == "" {
		var err error
		dir, err = os.MkdirTemp("", "openstack")
		if err != nil {
			return 1, err
		}

		defer func() { _ = os.RemoveAll(dir) }() // what is left of it is in the folder of temporary files

		run := exec.Command("../../../scripts/setup-openstack.sh", "run", dir)
		run.Stdout, run.Stderr = os.Stderr, os.Stderr

		// The script becomes the process that holds all services: they end with it, and it with us.
		run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := run.Start(); err != nil {
			return 1, err
		}

		ended := make(chan struct{})
		go func() {
			defer close(ended)

			_ = run.Wait() // it is killed below, or has said why it ended
		}()
		defer func() {
			_ = run.Process.Kill() // it may have ended
			<-ended
		}()

		if err := awaitServices(dir, ended); err != nil {
			return 1, err
		}
	}

	var err error
	theLab, err = openLab(dir)
	if err != nil {
		return 1, err
	}

	return m.Run(), nil
}

func awaitServices(dir string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute) // a first time installs them
	defer cancel()

	for {
		if _, err := os.Stat(filepath.Join(dir, "env")); err == nil {
			return nil
		}

		switch clock.Wait(ctx, 200*time.Millisecond, ended) {
		case clock.Woken:
			return fmt.Errorf("the services did not start")
		case clock.Ended:
			return fmt.Errorf("the services were not there in time: %w", ctx.Err())
		case clock.Passed:
		}
	}
}

func openLab(dir string) (*lab, error) {
	f, err := os.Open(filepath.Join(dir, "env"))
	if err != nil {
		return nil, err
	}

	defer func() { _ = f.Close() }() // it was only read

	l := &lab{vars: map[string]string{}}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		key, value, _ := strings.Cut(sc.Text(), "=")
		l.vars[key] = value
	}

	l.nova = l.vars["NOVA_URL"]
	l.token, err = l.login("admin", "admin")

	return l, err
}

// ask calls an API and fails on any status that is none of success.
func (l *lab) ask(method, address, token string, body any) (map[string]any, http.Header, error) {
	var payload io.Reader

	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, nil, err
		}

		payload = bytes.NewReader(data)
	}

	r, err := http.NewRequest(method, address, payload)
	if err != nil {
		return nil, nil, err
	}

	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Auth-Token", token)
	r.Header.Set("OpenStack-API-Version", "compute "+openstack.Microversion)

	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}

	text, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, nil, err
	}
	if res.StatusCode >= 300 {
		return nil, nil, fmt.Errorf("%s %s: %s %.300s", method, address, res.Status, text)
	}

	var answer map[string]any
	if len(text) > 0 {
		err = json.Unmarshal(text, &answer)
	}

	return answer, res.Header, err
}

func (l *lab) must(t *testing.T, method, address, token string, body any) map[string]any {
	t.Helper()
	answer, _, err := l.ask(method, address, token, body)
	if err != nil {
		t.Fatal(err)
	}

	return answer
}

func (l *lab) login(user, project string) (string, error) {
	domain := map[string]any{"name": "Default"}
	_, header, err := l.ask("POST", l.vars["OS_AUTH_URL"]+"/auth/tokens", "", map[string]any{"auth": map[string]any{
		"identity": map[string]any{"methods": []string{"password"}, "password": map[string]any{
			"user": map[string]any{"name": user, "password": "secret", "domain": domain}}},
		"scope": map[string]any{"project": map[string]any{"name": project, "domain": domain}},
	}})

	if err != nil {
		return "", err
	}

	return header.Get("X-Subject-Token"), nil
}

// project is a project of its own in the lab, with a user of the same name.
type project struct {
	*lab
	name  string
	id    string
	token string // of its user
}

// project makes an empty project.
func (l *lab) project(t *testing.T) *project {
	t.Helper()
	keystone := l.vars["OS_AUTH_URL"]
	p := &project{lab: l, name: fmt.Sprintf("yard-%d-%d", os.Getpid(), l.count.Add(1))}
	made := l.must(
		t,
		"POST",
		keystone+"/projects",
		l.token,
		map[string]any{"project": map[string]any{"name": p.name, "domain_id": "default"}},
	)

	p.id = dig[string](made, "project", "id")
	made = l.must(
		t,
		"POST",
		keystone+"/users",
		l.token,
		map[string]any{"user": map[string]any{"name": p.name, "domain_id": "default", "password": "secret"}},
	)

	user := dig[string](made, "user", "id")
	l.must(
		t,
		"PUT",
		fmt.Sprintf("%s/projects/%s/users/%s/roles/%s", keystone, p.id, user, l.vars["MEMBER_ROLE"]),
		l.token,
		nil,
	)

	p.open(t)

	if err := p.quota(10); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		for _, s := range p.servers(t) {
			if _, _, err := l.ask("DELETE", l.nova+"/servers/"+dig[string](s, "id"), l.token, nil); err != nil &&
				!strings.Contains(err.Error(), " 404 ") {
				t.Errorf("clean up: %v", err)
			}
		}
	})

	return p
}

// quota says how many servers the project may have; of memory it may have any amount.
func (p *project) quota(servers int) error {
	_, _, err := p.ask(
		"PUT",
		p.nova+"/os-quota-sets/"+p.id,
		p.lab.token,
		map[string]any{"quota_set": map[string]any{"instances": servers, "ram": -1}},
	)

	return err
}

func (p *project) open(t *testing.T) {
	t.Helper()
	var err error
	p.token, err = p.login(p.name, p.name)
	if err != nil {
		t.Fatal(err)
	}
}

// servers are those of the project, as an administrator sees them: a user does not see user data.
func (p *project) servers(t *testing.T) []map[string]any {
	t.Helper()
	var all []map[string]any

	next := p.nova + "/servers/detail?all_tenants=1&project_id=" + url.QueryEscape(p.id)
	for next != "" {
		page := p.must(t, "GET", next, p.lab.token, nil)
		for _, s := range dig[[]any](page, "servers") {
			all = append(all, s.(map[string]any))
		}

		next = ""
		for _, link := range dig[[]any](page, "servers_links") {
			next = dig[string](link.(map[string]any), "href")
		}
	}

	return all
}

// make makes a server past the provider.
func (p *project) make(t *testing.T, name string, metadata map[string]string, tags ...string) string {
	t.Helper()
	made := p.must(t, "POST", p.nova+"/servers", p.token, map[string]any{"server": map[string]any{
		"name":      name,
		"flavorRef": p.vars["FLAVOR_plain"],
		"imageRef":  p.vars["IMAGE_ID"],
		"networks":  "none",
		"metadata":  metadata,
		"tags":      append([]string{}, tags...),
	}})

	return dig[string](made, "server", "id")
}

func (p *project) stop(t *testing.T, server string) {
	t.Helper()
	p.must(t, "POST", p.nova+"/servers/"+server+"/action", p.token, map[string]any{"os-stop": nil})
}

func (p *project) config() openstack.Config {
	return openstack.Config{
		AuthURL: p.vars["OS_AUTH_URL"], Username: p.name, Password: "secret", Project: p.name,
		Regions: []string{"lab"}, Image: "debian", Network: "none",
	}
}

// dig returns what lies under these keys, its zero if there is no such thing.
func dig[T any](from map[string]any, keys ...string) T {
	var zero T
	for i, key := range keys {
		if i == len(keys)-1 {
			if v, ok := from[key].(T); ok {
				return v
			}

			return zero
		}

		from, _ = from[key].(map[string]any)
	}

	return zero
}
