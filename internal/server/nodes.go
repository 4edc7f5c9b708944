package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) nodeRoutes() {
	huma.Register(s.api, huma.Operation{OperationID: "list-nodes", Method: http.MethodGet, Path: "/api/v1/nodes", Summary: "List nodes by name",
		Security: byToken, Tags: []string{"nodes"}}, s.listNodes)
	huma.Register(s.api, huma.Operation{OperationID: "get-node", Method: http.MethodGet, Path: "/api/v1/nodes/{node}", Summary: "Show a node",
		Security: byToken, Tags: []string{"nodes"}}, s.getNode)
	huma.Register(s.api, huma.Operation{OperationID: "drain-node", Method: http.MethodPost, Path: "/api/v1/nodes/{node}/drain",
		Summary: "Let nothing new onto a node", Security: byToken, Tags: []string{"nodes"}}, s.drainNode)
	huma.Register(s.api, huma.Operation{OperationID: "undrain-node", Method: http.MethodPost, Path: "/api/v1/nodes/{node}/undrain",
		Summary: "Open a drained node again", Security: byToken, Tags: []string{"nodes"}}, s.undrainNode)
	huma.Register(s.api, huma.Operation{OperationID: "remove-node", Method: http.MethodDelete, Path: "/api/v1/nodes/{node}",
		Summary: "Take a node out of the yard", DefaultStatus: http.StatusNoContent, Security: byToken, Tags: []string{"nodes"}}, s.removeNode)
}

func (s *Server) listNodes(ctx context.Context, in *struct{ Paging }) (*body[api.NodePage], error) {
	if err := allow(ctx, tenant.ReadNodes, ""); err != nil {
		return nil, toProblem(err)
	}
	page := api.NodePage{Nodes: []api.Node{}}
	err := s.query(ctx, func(y *yardmaster.Yard) {
		infos := y.Nodes(id.Node(in.Cursor), in.Limit+1)
		if len(infos) > in.Limit {
			infos = infos[:in.Limit]
			page.Next = string(infos[len(infos)-1].ID)
		}
		for i := range infos {
			page.Nodes = append(page.Nodes, toNode(&infos[i]))
		}
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &body[api.NodePage]{page}, nil
}

// NodeInput names a node in a path.
type NodeInput struct {
	Node string `path:"node" maxLength:"63"`
}

func (s *Server) readNode(ctx context.Context, name string) (*body[api.Node], error) {
	var info yardmaster.NodeInfo
	var missing error
	err := s.query(ctx, func(y *yardmaster.Yard) { info, missing = y.NodeByName(id.Node(name)) })
	if err == nil {
		err = missing
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &body[api.Node]{toNode(&info)}, nil
}

func (s *Server) getNode(ctx context.Context, in *NodeInput) (*body[api.Node], error) {
	if err := allow(ctx, tenant.ReadNodes, ""); err != nil {
		return nil, toProblem(err)
	}
	return s.readNode(ctx, in.Node)
}

type drainInput struct {
	NodeInput
	Body *api.DrainRequest `required:"false"`
}

func (s *Server) drainNode(ctx context.Context, in *drainInput) (*body[api.Node], error) {
	m := yardmaster.Drain{Node: id.Node(in.Node), By: callerOf(ctx).User, On: true}
	if in.Body != nil {
		m.Stop = in.Body.Stop
	}
	return s.changeNode(ctx, in.Node, m)
}

func (s *Server) undrainNode(ctx context.Context, in *NodeInput) (*body[api.Node], error) {
	return s.changeNode(ctx, in.Node, yardmaster.Drain{Node: id.Node(in.Node), By: callerOf(ctx).User})
}

func (s *Server) changeNode(ctx context.Context, name string, m yardmaster.Message) (*body[api.Node], error) {
	if err := allow(ctx, tenant.ChangeNodes, ""); err != nil {
		return nil, toProblem(err)
	}
	if _, err := s.do(ctx, m); err != nil {
		return nil, s.fail(ctx, err)
	}
	return s.readNode(ctx, name)
}

func (s *Server) removeNode(ctx context.Context, in *NodeInput) (*struct{}, error) {
	if err := allow(ctx, tenant.ChangeNodes, ""); err != nil {
		return nil, toProblem(err)
	}
	if _, err := s.do(ctx, yardmaster.RemoveNode{Node: id.Node(in.Node), By: callerOf(ctx).User}); err != nil {
		return nil, s.fail(ctx, err)
	}
	return nil, nil
}
