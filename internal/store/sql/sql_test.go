package sql

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"trainyard/internal/store"
	"trainyard/internal/store/storetest"
	"trainyard/internal/store/storetest/pgtest"
)

// startPostgres starts one server for all tests, when the first asks for it.
var startPostgres = sync.OnceValues(func() (*pgtest.Server, error) { return pgtest.Start("", false) })

// postgresUsed says that there is a server to stop.
var postgresUsed, newDatabase = false, sync.OnceValue(func() func(testing.TB) string {
	server, err := startPostgres()
	if err != nil {
		return func(tb testing.TB) string {
			tb.Helper()
			storetest.SkipPostgres(tb, err)
			return ""
		}
	}

	postgresUsed = true

	return storetest.Databases(server)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if postgresUsed {
		if server, err := startPostgres(); err == nil {
			if err := server.Stop(); err != nil {
				_, _ = os.Stderr.WriteString(err.Error() + "\n")
				code = 1
			}
		}
	}

	os.Exit(code)
}

// engines are the databases on which every test runs; url makes an empty one.
func engines() map[string]func(tb testing.TB) string {
	return map[string]func(tb testing.TB) string{
		"sqlite": func(tb testing.TB) string {
			tb.Helper()
			return "sqlite://" + filepath.Join(tb.TempDir(), "yard #1.db")
		},
		"postgres": func(tb testing.TB) string {
			tb.Helper()
			return newDatabase()(tb)
		},
	}
}

// engineTest is a test on one empty database.
type engineTest struct {
	*testing.T
	url string
}

// onEngines runs a test on each database.
func onEngines(t *testing.T, test func(t engineTest)) {
	t.Helper()

	for name, url := range engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(engineTest{t, url(t)})
		})
	}
}

// patient are timeouts that a busy machine does not exceed.
var patient = Timeouts{Commit: time.Minute, Read: time.Minute, Load: time.Minute}

func open(tb testing.TB, url string) *Store {
	tb.Helper()
	s, err := Open(tb.Context(), url, Options{Timeouts: patient})
	if err != nil {
		tb.Fatal(err)
	}

	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})

	return s
}

func TestContract(t *testing.T) {
	t.Parallel()

	for name, newURL := range engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newURL := newURL
			if name == "postgres" {
				newURL(t) // skips all at once
			}

			var urls sync.Map // by test, so that a test can open its store again
			storetest.Run(t, func(t *testing.T) store.Store {
				t.Helper()
				url, ok := urls.Load(t.Name())
				if !ok {
					url = newURL(t)
					urls.Store(t.Name(), url)
				}

				s, err := Open(t.Context(), url.(string), Options{Timeouts: patient})
				if err != nil {
					t.Fatal(err)
				}

				return s
			})
		})
	}
}
