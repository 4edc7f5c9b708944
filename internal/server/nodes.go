package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) nodeRoutes() {
	const tag = "nodes"
	huma.Register(s.api, s.op("list-nodes", http.MethodGet, "/api/v1/nodes", "List nodes by name", tag), s.listNodes)
	huma.Register(s.api, s.op("get-node", http.MethodGet, "/api/v1/nodes/{node}", "Show a node", tag), s.getNode)
	huma.Register(s.api, s.op("cordon-node", http.MethodPost, "/api/v1/nodes/{node}/cordon",
		"Stop scheduling on a node; its jobs run on", tag), s.cordonNode)
	huma.Register(s.api, s.op("uncordon-node", http.MethodPost, "/api/v1/nodes/{node}/uncordon",
		"Resume scheduling on a node", tag), s.uncordonNode)
	huma.Register(s.api, s.op("drain-node", http.MethodPost, "/api/v1/nodes/{node}/drain",
		"Cordon a node and stop its jobs, so that they restart elsewhere", tag), s.drainNode)
	huma.Register(s.api, s.op("clear-gpu-error", http.MethodPost, "/api/v1/nodes/{node}/gpus/{gpu}/clear-error",
		"Return a quarantined GPU to service", tag), s.clearGPUError)
	huma.Register(s.api, s.op("accept-node", http.MethodPost, "/api/v1/nodes/{node}/accept",
		"Accept what a node declares, or that its identity is its own", tag), s.acceptNode)
	remove := s.op("remove-node", http.MethodDelete, "/api/v1/nodes/{node}", "Remove a node from the yard", tag)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, remove, s.removeNode)
}

func (s *Server) listNodes(ctx context.Context, in *struct{ Paging }) (*httpapi.Body[api.NodePage], error) {
	if err := allow(ctx, tenant.ReadNodes, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	page := api.NodePage{Nodes: []api.Node{}}

	err := s.query(ctx, func(y *yardmaster.Yard) {
		infos := y.Nodes(id.Node(in.Cursor), in.Limit+1)
		if len(infos) > in.Limit {
			infos = infos[:in.Limit]
			page.Next = string(infos[len(infos)-1].ID)
		}

		for i := range infos {
			page.Nodes = append(page.Nodes, s.toNode(ctx, &infos[i]))
		}
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.NodePage]{Body: page}, nil
}

// NodeInput names a node in a path.
type NodeInput struct {
	Node string `path:"node" maxLength:"63"`
}

func (s *Server) readNode(ctx context.Context, name string) (*httpapi.Body[api.Node], error) {
	var info yardmaster.NodeInfo
	var missing error
	err := s.query(ctx, func(y *yardmaster.Yard) { info, missing = y.NodeByName(id.Node(name)) })
	if err == nil {
		err = missing
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.Node]{Body: s.toNode(ctx, &info)}, nil
}

func (s *Server) getNode(ctx context.Context, in *NodeInput) (*httpapi.Body[api.Node], error) {
	if err := allow(ctx, tenant.ReadNodes, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	return s.readNode(ctx, in.Node)
}

func (s *Server) cordonNode(ctx context.Context, in *NodeInput) (*httpapi.Body[api.Node], error) {
	return s.changeNode(ctx, in.Node, yardmaster.Cordon{Node: id.Node(in.Node), By: callerOf(ctx).User, On: true})
}

func (s *Server) uncordonNode(ctx context.Context, in *NodeInput) (*httpapi.Body[api.Node], error) {
	return s.changeNode(ctx, in.Node, yardmaster.Cordon{Node: id.Node(in.Node), By: callerOf(ctx).User})
}

func (s *Server) drainNode(ctx context.Context, in *NodeInput) (*httpapi.Body[api.Node], error) {
	return s.changeNode(ctx, in.Node, yardmaster.Cordon{
		Node: id.Node(in.Node), By: callerOf(ctx).User, On: true, Stop: true,
	})
}

func (s *Server) changeNode(ctx context.Context, name string, m yardmaster.Message) (*httpapi.Body[api.Node], error) {
	if err := allow(ctx, tenant.ChangeNodes, ""); err != nil {
		return nil, s.fail(ctx, err)
	}
	if _, err := s.do(ctx, m); err != nil {
		return nil, s.fail(ctx, err)
	}

	return s.readNode(ctx, name)
}

func (s *Server) acceptNode(ctx context.Context, in *NodeInput) (*httpapi.Body[api.Node], error) {
	return s.changeNode(ctx, in.Node, yardmaster.AcceptNode{Node: id.Node(in.Node), By: callerOf(ctx).User})
}

type removeNodeInput struct {
	NodeInput
	Force bool `query:"force" doc:"end the node at once: its runs are declared lost and restart elsewhere"`
}

func (s *Server) removeNode(ctx context.Context, in *removeNodeInput) (*struct{}, error) {
	if err := allow(ctx, tenant.ChangeNodes, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	m := yardmaster.RemoveNode{Node: id.Node(in.Node), By: callerOf(ctx).User, Force: in.Force}
	if _, err := s.do(ctx, m); err != nil {
		return nil, s.fail(ctx, err)
	}

	return nil, nil
}

type gpuInput struct {
	NodeInput
	GPU int `path:"gpu" minimum:"0" maximum:"63"`
}

// clearGPUError records the release; the agent learns of it with the reply to its next report.
func (s *Server) clearGPUError(ctx context.Context, in *gpuInput) (*httpapi.Body[api.Node], error) {
	if err := allow(ctx, tenant.ChangeNodes, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	answer, err := s.do(ctx, yardmaster.ClearGPUError{Node: id.Node(in.Node), GPU: in.GPU, By: callerOf(ctx).User})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	if e, ok := answer.(yardmaster.Event); ok {
		s.agents.Release(&e)
	}

	return s.readNode(ctx, in.Node)
}
