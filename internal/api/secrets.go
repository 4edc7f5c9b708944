package api

import (
	"context"
	"net/http"
	"time"

	"trainyard/internal/id"
)

// SecretRequest sets the value of a secret.
type SecretRequest struct {
	// It has no limits that the framework checks, because its errors would repeat the value.
	Value string `json:"value" doc:"8 to 32768 bytes of text; no answer ever contains it"`
}

// Secret describes a stored secret. Its value is given to jobs alone.
type Secret struct {
	Subject string    `json:"subject" doc:"user/NAME or project/NAME: whose jobs get it"`
	Name    string    `json:"name" doc:"name of the environment variable"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated" doc:"when its value was last set"`
	By      id.User   `json:"by" doc:"who set it"`
	Problem string    `json:"problem,omitempty" doc:"why its value cannot be decrypted; jobs that ask for it are held"`
}

// SecretPage lists secrets.
type SecretPage struct {
	Secrets []Secret `json:"secrets"`
	Next    string   `json:"next,omitempty"`
}

// KeyRotation says what was encrypted with the new master key of the secrets.
type KeyRotation struct {
	Key     string `json:"key" doc:"name of the new key"`
	Secrets int    `json:"secrets" doc:"number of secrets"`
}

// Secrets returns one page of secrets: one's own, or all of them for an admin.
func (c *Client) Secrets(ctx context.Context, p Page) (SecretPage, error) {
	return get[SecretPage](ctx, c, at("secrets"), p.query())
}

// PutSecret sets a secret of a user or project; kind is user or project.
func (c *Client) PutSecret(ctx context.Context, kind, of, name, value string) (Secret, error) {
	return put[Secret](ctx, c, at("secrets", kind, of, name), SecretRequest{Value: value})
}

// RemoveSecret deletes a secret of a user or project.
func (c *Client) RemoveSecret(ctx context.Context, kind, of, name string) error {
	return c.call(ctx, http.MethodDelete, at("secrets", kind, of, name), nil, nil, nil)
}

// RotateSecretKey makes a new master key of the secrets and encrypts all with it.
func (c *Client) RotateSecretKey(ctx context.Context) (KeyRotation, error) {
	return post[KeyRotation](ctx, c, at("secrets", "rotate-key"), nil)
}
