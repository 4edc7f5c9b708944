package server

import (
	"context"
	"net/http"

	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
)

// call is who may make a call. The zero value is for nobody.
type call struct {
	kind callKind
	// action is what a person must be allowed to do, to their own things at least. The handler then asks whether they
	// may do it to the very thing.
	action tenant.Action
}

type callKind int

const (
	byPerson callKind = iota + 1
	byNode            // agentapi checks the node's certificate
	byAnyone          // without a token; how often an address may is limited
	page              // the same for pages that monitoring and browsers read
	probe             // the same without a limit
)

// may is a call of a person.
func may(a tenant.Action) call { return call{kind: byPerson, action: a} }

// calls is every call that the server answers, and who may make it. Which roles may do an action, and with a token of
// which scope, is the table in internal/tenant/access.go. A route that is not in here cannot be registered.
var calls = map[string]call{
	"GET /{$}":                        {kind: page},
	"/":                               {kind: page}, // pages of the portal, and 404
	"GET /assets/{file}":              {kind: page},
	"GET /healthz":                    {kind: probe},
	"GET /readyz":                     {kind: probe},
	"GET /metrics":                    {kind: page},
	"GET /api/v1/openapi.yaml":        {kind: page},
	"GET /api/v1/jobfile.schema.json": {kind: page},
	"GET /api/v1/info":                {kind: byAnyone},
	"POST /api/v1/login":              {kind: byAnyone},

	"POST /api/v1/session":    {kind: byAnyone},     // with an access token, or the code of a link
	"DELETE /api/v1/session":  may(tenant.Identify), // a session ends itself
	"DELETE /api/v1/sessions": may(tenant.Identify), // and all of the same user

	"GET /api/v1/whoami":            may(tenant.Identify),
	"GET /api/v1/users":             may(tenant.ManageUsers),
	"GET /api/v1/users/{user}":      may(tenant.Identify), // of others: manage_users
	"PUT /api/v1/users/{user}":      may(tenant.ManageUsers),
	"GET /api/v1/tokens":            may(tenant.ReadTokens), // of others: manage_users
	"POST /api/v1/tokens":           may(tenant.OwnTokens),  // for others: manage_users; join tokens: change_nodes
	"DELETE /api/v1/tokens":         may(tenant.OwnTokens),  // of others: manage_users
	"DELETE /api/v1/tokens/{token}": may(tenant.Identify),   // a token may end itself; others: own_tokens, manage_users

	"GET /api/v1/projects":                             may(tenant.ReadProjects),
	"GET /api/v1/projects/{project}":                   may(tenant.ReadProjects),
	"PUT /api/v1/projects/{project}":                   may(tenant.ManageProjects),
	"DELETE /api/v1/projects/{project}":                may(tenant.ManageProjects),
	"PUT /api/v1/projects/{project}/members/{user}":    may(tenant.ManageProjects),
	"DELETE /api/v1/projects/{project}/members/{user}": may(tenant.ManageProjects),

	"GET /api/v1/jobs":                     may(tenant.ReadJob),
	"POST /api/v1/jobs":                    may(tenant.SubmitJob),
	"GET /api/v1/jobs/{job}":               may(tenant.ReadJob),
	"GET /api/v1/jobs/{job}/file":          may(tenant.ReadJob), // the values of env: its owner alone
	"GET /api/v1/templates":                may(tenant.Identify),
	"POST /api/v1/jobs/{job}/cancel":       may(tenant.ChangeJob),
	"POST /api/v1/jobs/{job}/kill":         may(tenant.ChangeJob),
	"POST /api/v1/jobs/{job}/pause":        may(tenant.ChangeJob),
	"POST /api/v1/jobs/{job}/resume":       may(tenant.ChangeJob),
	"POST /api/v1/jobs/{job}/save":         may(tenant.ChangeJob),
	"POST /api/v1/jobs/{job}/edit":         may(tenant.ChangeJob),
	"POST /api/v1/jobs/{job}/edit/preview": may(tenant.ChangeJob),
	"GET /api/v1/arrays":                   may(tenant.ReadJob),
	"GET /api/v1/arrays/{array}":           may(tenant.ReadJob),
	"POST /api/v1/arrays/{array}/cancel":   may(tenant.ChangeJob),
	"POST /api/v1/arrays/{array}/kill":     may(tenant.ChangeJob),
	"POST /api/v1/arrays/{array}/pause":    may(tenant.ChangeJob),
	"POST /api/v1/arrays/{array}/resume":   may(tenant.ChangeJob),
	"GET /api/v1/queue":                    may(tenant.ReadJob),
	"POST /api/v1/jobs/{job}/override":     may(tenant.OverridePlace),
	"GET /api/v1/jobs/{job}/logs":          may(tenant.ReadJob),
	"GET /api/v1/jobs/{job}/logs/follow":   may(tenant.ReadJob),

	"GET /api/v1/jobs/{job}/tunnel": may(tenant.ChangeJob), // into a job with secrets: its owner alone

	"GET /api/v1/jobs/{job}/logs/{run}/{rank}":       may(tenant.ReadJob),
	"GET /api/v1/jobs/{job}/logs/{run}/{rank}/lines": may(tenant.ReadJob),

	"GET /api/v1/jobs/{job}/checkpoints": may(tenant.ReadJob),
	"GET /api/v1/jobs/{job}/outputs":     may(tenant.ReadJob),
	"GET /api/v1/jobs/{job}/forecast":    may(tenant.ReadJob),
	"GET /api/v1/jobs/{job}/metrics":     may(tenant.ReadJob),
	"GET /api/v1/jobs/{job}/curve":       may(tenant.ReadJob),
	"GET /api/v1/jobs/{job}/utilization": may(tenant.ReadJob),
	"GET /api/v1/utilization":            may(tenant.ReadJob),
	"GET /api/v1/curves":                 may(tenant.ReadJob),

	"GET /api/v1/schedules":                  may(tenant.ReadJob),
	"POST /api/v1/schedules/{schedule}/stop": may(tenant.ChangeJob),

	"GET /api/v1/checkpoints/{checkpoint}":         may(tenant.ReadJob),
	"DELETE /api/v1/checkpoints/{checkpoint}":      may(tenant.ChangeJob),
	"PUT /api/v1/checkpoints/{checkpoint}/pin":     may(tenant.ChangeJob),
	"DELETE /api/v1/checkpoints/{checkpoint}/pin":  may(tenant.ChangeJob),
	"GET /api/v1/checkpoints/{checkpoint}/archive": may(tenant.ReadJob),

	"POST /api/v1/jobs/{job}/outputs":                             may(tenant.ChangeJob),
	"GET /api/v1/jobs/{job}/outputs/{run}/{rank}":                 may(tenant.ReadJob),
	"GET /api/v1/jobs/{job}/outputs/{run}/{rank}/chunks/{digest}": may(tenant.ReadJob),
	"GET /api/v1/jobs/{job}/outputs/{run}/{rank}/file":            may(tenant.ReadJob),

	"GET /api/v1/inbox":                     may(tenant.ReadJob),
	"GET /api/v1/inbox/{question}":          may(tenant.ReadJob),
	"POST /api/v1/inbox/{question}/accept":  may(tenant.ChangeJob),
	"POST /api/v1/inbox/{question}/dismiss": may(tenant.ChangeJob),

	"POST /api/v1/files/missing": may(tenant.SubmitJob),
	"PUT /api/v1/files/{digest}": may(tenant.SubmitJob),

	"POST /api/v1/files/{digest}/join": may(tenant.SubmitJob),

	"GET /api/v1/events":        may(tenant.ReadEvents),
	"GET /api/v1/events/follow": may(tenant.ReadEvents),

	"GET /api/v1/reservations":                    may(tenant.ReadNodes),
	"POST /api/v1/reservations":                   may(tenant.ChangeNodes),
	"POST /api/v1/reservations/{reservation}/end": may(tenant.ChangeNodes),

	"GET /api/v1/nodes":                                may(tenant.ReadNodes),
	"GET /api/v1/nodes/{node}":                         may(tenant.ReadNodes),
	"DELETE /api/v1/nodes/{node}":                      may(tenant.ChangeNodes),
	"GET /api/v1/nodes/{node}/runs":                    may(tenant.ReadNodes),
	"POST /api/v1/nodes/{node}/accept":                 may(tenant.ChangeNodes),
	"POST /api/v1/nodes/{node}/cordon":                 may(tenant.ChangeNodes),
	"POST /api/v1/nodes/{node}/drain":                  may(tenant.ChangeNodes),
	"POST /api/v1/nodes/{node}/uncordon":               may(tenant.ChangeNodes),
	"POST /api/v1/nodes/{node}/gpus/{gpu}/clear-error": may(tenant.ChangeNodes),
	"GET /api/v1/summary":                              may(tenant.ReadNodes),
	"GET /api/v1/summary/hours":                        may(tenant.ReadNodes),
	"GET /api/v1/forecasts":                            may(tenant.ReadNodes),
	"POST /api/v1/forecasts/history":                   may(tenant.ChangeNodes),

	"GET /api/v1/offers":                  may(tenant.ReadOffers),
	"GET /api/v1/leases":                  may(tenant.ReadUsage),
	"GET /api/v1/leases/{lease}":          may(tenant.ReadUsage),
	"POST /api/v1/leases/{lease}/release": may(tenant.ManageLeases),
	"GET /api/v1/reaper":                  may(tenant.ReadUsage), // of everyone

	"GET /api/v1/usage":                   may(tenant.ReadUsage),
	"GET /api/v1/usage/report":            may(tenant.ReadUsage),
	"GET /api/v1/usage/series":            may(tenant.ReadUsage),
	"GET /api/v1/savings":                 may(tenant.ReadUsage),
	"GET /api/v1/waste":                   may(tenant.ReadUsage),
	"GET /api/v1/retention":               may(tenant.ReadUsage),
	"POST /api/v1/whatif":                 may(tenant.ReadNodes), // of what they may see
	"GET /api/v1/policies":                may(tenant.ReadNodes),
	"GET /api/v1/quotas":                  may(tenant.ReadUsage),
	"PUT /api/v1/quotas/{kind}/{name}":    may(tenant.ManageQuotas),
	"DELETE /api/v1/quotas/{kind}/{name}": may(tenant.ManageQuotas),

	"GET /api/v1/datasets":                 may(tenant.ReadData),
	"GET /api/v1/datasets/{dataset}":       may(tenant.ReadData),
	"PUT /api/v1/datasets/{dataset}":       may(tenant.ManageData),
	"DELETE /api/v1/datasets/{dataset}":    may(tenant.ManageData),
	"GET /api/v1/datasets/{dataset}/audit": may(tenant.ReadUsage), // of the owner

	"GET /api/v1/secrets":                       may(tenant.ReadSecrets),
	"PUT /api/v1/secrets/{kind}/{of}/{name}":    may(tenant.ManageSecrets),
	"DELETE /api/v1/secrets/{kind}/{of}/{name}": may(tenant.ManageSecrets),
	"POST /api/v1/secrets/rotate-key":           may(tenant.RotateSecrets),

	"GET /api/v1/notify":                          may(tenant.ReadChannels),
	"PUT /api/v1/notify/{kind}/{of}/{name}":       may(tenant.ManageChannels),
	"DELETE /api/v1/notify/{kind}/{of}/{name}":    may(tenant.ManageChannels),
	"POST /api/v1/notify/{kind}/{of}/{name}/test": may(tenant.ManageChannels),

	"POST /agent/v1/join":              {kind: byAnyone}, // with a join token
	"POST /agent/v1/renew":             {kind: byNode},
	"POST /agent/v1/reports":           {kind: byNode},
	"GET /agent/v1/assignments":        {kind: byNode},
	"GET /agent/v1/tunnels/{tunnel}":   {kind: byNode},
	"POST /agent/v1/metrics":           {kind: byNode},
	"POST /agent/v1/logs/{run}/{rank}": {kind: byNode},
	"POST /agent/v1/chunks":            {kind: byNode},
	"GET /agent/v1/chunks/{digest}":    {kind: byNode},
	"PUT /agent/v1/chunks/{digest}":    {kind: byNode},
	"POST /agent/v1/checkpoints":       {kind: byNode},
	"POST /agent/v1/outputs":           {kind: byNode},
	"POST /agent/v1/shared":            {kind: byNode},
	"GET /agent/v1/files/{digest}":     {kind: byNode},
}

// gate is the mux of all routes. It lets nobody through whom the table of calls does not.
type gate struct {
	mux    *http.ServeMux
	server *Server
}

// ServeHTTP answers a request.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.mux.ServeHTTP(w, r) }

// HandleFunc registers a route. One that is not in the table is a mistake in the program, and the server does not start
// with it.
func (g *gate) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	c, ok := calls[pattern]
	if !ok {
		panic("the route " + pattern + " is not in the table of calls: say in internal/server/calls.go who may use it")
	}

	g.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		ctx, err := g.server.admit(r, c)
		if err != nil {
			httpapi.WriteProblem(w, err)
			return
		}

		handler(w, r.WithContext(ctx))
	})
}

// admit lets a request through that the caller may make, and returns its context with the caller.
func (s *Server) admit(r *http.Request, c call) (context.Context, error) {
	ctx := r.Context()

	switch c.kind {
	case byAnyone, page:
		if !s.limiter.allow(s.addressOf(r)) {
			return ctx, httpapi.TooOften()
		}

		return ctx, nil
	case byNode, probe:
		return ctx, nil
	case byPerson:
		who, err := s.person(r)
		if err != nil {
			return ctx, err
		}
		if !who.MayAt(c.action) {
			return ctx, deny(who, actionPhrases[c.action], func(other tenant.Caller) bool { return other.MayAt(c.action) })
		}

		return context.WithValue(ctx, callerKey{}, who), nil
	}

	return ctx, errInternal()
}
