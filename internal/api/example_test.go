package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"trainyard/internal/api"
)

func ExampleClient_Submit() {
	// A server of the API; a real one is reached with the URL and the token that `trainyard login` stored.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path, "with key", r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, `{"jobs": [{"id": "j1", "name": "hello", "state": "pending", "reason": "queued"}]}`)
	}))
	defer server.Close()

	client := api.NewClient(server.URL, "ty_secret", nil)
	defer client.Close()

	// The key makes the call safe to retry: the same key submits the same job once.
	reply, err := client.Submit(context.Background(), api.SubmitRequest{File: "name: hello\nrun: echo hello\n"}, "key-1")
	if err != nil {
		fmt.Println(err)
		return
	}

	for _, j := range reply.Jobs {
		fmt.Println(j.ID, j.Name, j.State, j.Reason)
	}
	// Output:
	// POST /api/v1/jobs with key key-1
	// j1 hello pending queued
}
