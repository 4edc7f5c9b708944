package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/server"
	"trainyard/internal/server/portal"
)

// openPortal returns the pages that this binary carries, and whether it carries any.
func openPortal() (*portal.Portal, bool, error) {
	files, err := embeddedPortal()
	if err != nil || files == nil {
		return portal.None(), false, err
	}

	pages, err := portal.New(files)

	return pages, err == nil, err
}

// portalPort is where up serves the portal, so that a bookmark works the next time. If it is taken, another is.
const portalPort = "7480"

// localPortal serves the portal to browsers on this machine, without TLS: no browser knows the CA of a new yard, and
// what is sent does not leave the machine. It returns the address and what stops it.
func (r *running) localPortal(ctx context.Context) (address string, stop func() error, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", portalPort))
	if err != nil {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	}

	if err != nil {
		return "", nil, fmt.Errorf("listen for the portal: %w", err)
	}

	web := newHTTPServer(onlyLocal(&r.front), nil, r.log)
	web.BaseContext = func(net.Listener) context.Context { return ctx }

	go func() {
		if err := web.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			r.failed <- fmt.Errorf("serve the portal: %w", err)
		}
	}()

	return "http://" + listener.Addr().String() + "/", web.Close, nil
}

// onlyLocal answers requests that name this machine. A page of another site whose name was made to lead here would
// otherwise count as one of this server.
func onlyLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := (&url.URL{Host: r.Host}).Hostname()
		if ip := net.ParseIP(host); host != "localhost" && !ip.IsLoopback() {
			http.Error(w, "this address is for browsers on the machine of the server", http.StatusMisdirectedRequest)
			return
		}

		next.ServeHTTP(w, r)
	})
}

// signInLink returns an address that signs a browser on this machine in, once.
func (r *running) signInLink(address string, user id.User) string {
	return address + "#code=" + r.codes.New(user)
}

// showPortal serves the portal on this machine and says how to open it. A binary without pages has nothing to show.
func (r *running) showPortal(
	ctx context.Context, user id.User, show func(format string, args ...any),
) (stop func() error, err error) {
	if !r.hasPortal {
		return func() error { return nil }, nil
	}

	address, stop, err := r.localPortal(ctx)
	if err != nil {
		return nil, err
	}

	show("  portal  %s\n          signs you in once, within %d minutes\n", r.signInLink(address, user),
		int(server.CodeLife/time.Minute))

	return stop, nil
}
