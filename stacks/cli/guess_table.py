"""List command lines of Terraform, Pulumi, kubectl, gh and others with gpuform's command for each.

`first_guesses` reads the table when a command line is wrong.
"""

from typing import Final, NamedTuple


class Guess(NamedTuple):
    """A command line of another tool, and gpuform's command for the same work.

    `pattern` begins with the words of the command; NAME stands for any word but a number, FILE for
    the name of a file with declarations, and a flag may be anywhere. `command` has placeholders for
    the further words of the command line: {RESOURCE} shows RESOURCE for a missing word, and {}
    nothing.
    """

    pattern: str
    command: str
    effect: str


_APPLY: Final = "creates, updates and deletes resources until they match the files of this folder"
_DECLARE: Final = "applies what the topology declares: change the topology first"
_DRAINS: Final = "explains how gpuform drains nodes before it removes or repairs them"
_LIST_STACKS: Final = "lists the stacks"
_SHOW_NODES: Final = "shows clusters and nodes with their state, GPUs and cost"
_SHOW_STACK: Final = "shows the selected stack"

GUESSES: Final = (
    # Terraform and OpenTofu
    Guess("init", "stack init {NAME}", "creates a stack; `gpuform new` creates a project"),
    Guess("plan", "preview", "shows the plan"),
    Guess("plan -destroy", "destroy --preview-only", "shows what a destroy would delete"),
    Guess("plan -refresh-only", "drift", "shows what changed outside of the stack"),
    Guess("apply", "up", _APPLY),
    Guess("apply NAME", "up --plan {FILE}", "applies a saved plan"),
    Guess("apply FILE", "up", _APPLY),
    Guess("up FILE", "up", _APPLY),
    Guess("preview FILE", "preview", "shows what `gpuform up` would change in this folder"),
    Guess("apply -refresh-only", "refresh", "updates the state from the platforms"),
    Guess("apply -destroy", "destroy", "deletes every resource of the stack"),
    Guess("apply -dry-run", "preview", "shows what `gpuform up` would change"),
    Guess("output", "stack output {}", "shows the stack's outputs"),
    Guess("show", "status", "shows the stack's resources"),
    Guess("show NAME", "review {FILE}", "shows a saved plan"),
    Guess("state mv", "state rename {RESOURCE} {NAME}", "renames a resource in the state"),
    Guess("state pull", "stack export", "prints the state"),
    Guess("state push", "stack import --file {FILE}", "replaces the state"),
    Guess("taint", "state taint {RESOURCE}", "makes the next `gpuform up` replace the resource"),
    Guess("untaint", "state untaint {RESOURCE}", "removes the taint"),
    Guess("workspace", "stack ls", f"{_LIST_STACKS}: a stack is what Terraform calls a workspace"),
    Guess("workspace list", "stack ls", _LIST_STACKS),
    Guess("workspace new", "stack init {NAME}", "creates a stack"),
    Guess("workspace select", "stack select {NAME}", "selects a stack"),
    Guess("workspace show", "stack", _SHOW_STACK),
    Guess("workspace delete", "stack rm {NAME}", "removes a stack"),
    Guess("force-unlock", "cancel", "removes the locks that an ended command left"),
    Guess("unlock", "cancel", "removes the locks that an ended command left"),
    Guess("providers", "about", "shows versions; the platforms are part of gpuform"),
    Guess("get", "validate", "loads the modules and checks the topology"),
    Guess("modules", "help guides/modules", "shows the guide to modules"),
    Guess("metadata", "schema", "prints the JSON Schema of topology files"),
    Guess("version", "--version", "shows the version"),
    Guess("-V", "--version", "shows the version"),
    # Pulumi
    Guess("history", "stack history", "lists the runs of the stack"),
    Guess("watch", "up", f"{_APPLY}; it runs once"),
    Guess("policy", "help guides/gates-and-cost", "shows the guide to gates"),
    Guess("env", "config", "shows the stack's configuration"),
    Guess("org", "whoami", "shows the user that runs are recorded for"),
    Guess("schema NAME", "validate", "checks topology files"),
    Guess("install", "doctor", "checks what is installed and reachable; gpuform is complete"),
    Guess("package", "plugin install", "installs the provider plugin for the Pulumi CLI"),
    Guess("plugin ls", "plugin doctor", "shows the installed plugin and its problems"),
    Guess("plugin list", "plugin doctor", "shows the installed plugin and its problems"),
    Guess("deployment", "help guides/review", "shows how CI plans and applies"),
    Guess("stack graph", "graph", "draws the stack"),
    Guess("stack show", "stack", _SHOW_STACK),
    Guess("stack list-outputs", "stack output", "shows the stack's outputs"),
    Guess("stack cancel", "cancel", "removes the locks that an ended command left"),
    Guess("config set-all", "config set {KEY} {VALUE}", "sets one key"),
    # kubectl
    Guess("get NAME", "status", _SHOW_NODES),
    Guess("get secrets", "config", "shows the stack's configuration, with secrets masked"),
    Guess("get events", "logs", "shows a run step by step"),
    Guess("get pods", "connect {CLUSTER} -- kubectl get pods", "runs kubectl on a cluster"),
    Guess("get namespaces", "connect {CLUSTER} -- kubectl get namespaces", "runs kubectl"),
    Guess("describe", "state show {RESOURCE}", "shows a resource with all of its properties"),
    Guess("apply -f", "up", _APPLY),
    Guess("apply -k", "up", _APPLY),
    Guess("apply -f -dry-run", "preview", "shows what `gpuform up` would change"),
    Guess("create", "up", _APPLY),
    Guess("replace", "up --replace {RESOURCE}", "replaces a resource"),
    Guess("delete", "destroy", "deletes every resource of the stack"),
    Guess("delete NAME", "destroy --target {RESOURCE}", "deletes one resource"),
    Guess("delete node", "help guides/grow-and-shrink", "shows how a cluster gives up nodes"),
    Guess("diff", "preview --diff", "shows the plan with every changed property"),
    Guess("cordon", "help concepts/taking-nodes", _DRAINS),
    Guess("uncordon", "help concepts/taking-nodes", _DRAINS),
    Guess("drain", "help concepts/taking-nodes", _DRAINS),
    Guess(
        "logs NAME",
        "connect CLUSTER --node {NODE}",
        "opens a shell on a node; `gpuform logs` shows the runs of the stack",
    ),
    Guess("logs -f", "logs", "shows the last run; `gpuform status` shows what exists now"),
    Guess("logs -follow", "logs", "shows the last run; `gpuform status` shows what exists now"),
    Guess("exec", "connect CLUSTER --node {NODE}", "opens a shell on a node"),
    Guess("attach", "connect CLUSTER --node {NODE}", "opens a shell on a node"),
    Guess("top", "status", _SHOW_NODES),
    Guess("scale", "up", f"{_DECLARE} (`gpuform help guides/grow-and-shrink`)"),
    Guess("autoscale", "help guides/grow-and-shrink", "shows how clusters grow and shrink"),
    Guess("rollout", "status", f"{_SHOW_NODES}; `gpuform up` waits until they are ready"),
    Guess(
        "rollout undo", "up", "applies the files of this folder: check out the earlier ones first"
    ),
    Guess("rollout restart", "up --replace {RESOURCE}", "replaces a resource"),
    Guess("api-resources", "help reference/topology", "lists every kind of resource"),
    Guess("api-versions", "about", "shows versions"),
    Guess("cluster-info", "status", _SHOW_NODES),
    Guess("config get-contexts", "stack ls", _LIST_STACKS),
    Guess("config use-context", "stack select {NAME}", "selects a stack"),
    Guess("config current-context", "stack", _SHOW_STACK),
    Guess("config unset", "config rm {NAME}", "removes a key of the configuration"),
    Guess("config view", "config", "shows the stack's configuration"),
    Guess("edit", "up", _DECLARE),
    Guess("patch", "up", _DECLARE),
    Guess("set", "up", f"{_DECLARE}; `gpuform config set KEY VALUE` sets configuration"),
    Guess("label", "up", _DECLARE),
    Guess("annotate", "up", _DECLARE),
    Guess("wait", "up", "waits until its resources are ready"),
    Guess("port-forward", "connect CLUSTER -- kubectl port-forward {POD} 8080", "runs kubectl"),
    Guess("proxy", "connect CLUSTER -- kubectl proxy", "runs kubectl on a cluster"),
    Guess("events", "logs", "shows a run step by step"),
    Guess("cp", "ssh-config --install", "makes nodes known to ssh and scp; then use scp"),
    Guess("options", "help reference/commands", "lists the commands and the flags of all"),
    # gh
    Guess("auth", "doctor", "checks the platforms' keys"),
    Guess(
        "auth login",
        "doctor",
        "checks the platforms' keys; `gpuform login` chooses the backend of the state",
    ),
    Guess("auth logout", "logout", "forgets the backend of the state"),
    Guess("auth can-i", "doctor", "checks the rights of the platforms' keys"),
    Guess("secret", "config", "shows the stack's configuration"),
    Guess("secret set", "config set --secret {NAME}", "asks for the value of a secret"),
    Guess("secret remove", "config rm {NAME}", "removes a key of the configuration"),
    Guess("secret delete", "config rm {NAME}", "removes a key of the configuration"),
    Guess("variable", "config", "shows the stack's configuration"),
    Guess("variable set", "config set {NAME}", "asks for the value of a key"),
    Guess("variable get", "config get {NAME}", "prints the value of a key"),
    Guess("variable delete", "config rm {NAME}", "removes a key of the configuration"),
    Guess("run", "up", _APPLY),
    Guess("run list", "stack history", "lists the runs of the stack"),
    Guess("run view", "logs {}", "shows a run step by step"),
    Guess("run watch", "status", _SHOW_NODES),
    Guess("workflow", "new ci", "writes workflows that plan and apply in CI"),
    Guess("pr", "review {FILE}", "shows a saved plan to the people who approve it"),
    Guess("issue", "help guides/troubleshooting", "shows what to do about problems"),
    Guess("extension", "help guides/add-a-platform", "shows how a platform is added"),
    Guess(
        "alias",
        "completion bash",
        "prints the script that completes commands; aliases are the shell's",
    ),
    Guess("api", "status --json", "prints what the platforms report, as JSON"),
    Guess("browse", "help {}", "lists the pages of the documentation"),
    Guess("codespace", "connect CLUSTER", "connects to a cluster"),
    Guess("repo", "stack ls", _LIST_STACKS),
    Guess("cache", "about", "shows where gpuform stores what"),
    Guess("completion -s", "completion bash", "prints the script for bash; zsh and fish work, too"),
    # dstack, SkyPilot, clouds, and words of every day
    *(
        Guess(word, "status", f"{_SHOW_NODES}; `gpuform stack ls` {_LIST_STACKS}")
        for word in (
            "ls",
            "list",
            "ps",
            "info",
            "nodes",
            "clusters",
            "queue",
            "cost",
            "cost-report",
        )
    ),
    *(Guess(word, "up", _APPLY) for word in ("launch", "deploy", "provision", "sync", "jobs")),
    *(
        Guess(word, "offers", "shows regions, GPU types and prices")
        for word in (
            "gpus",
            "offer",
            "prices",
            "regions",
            "show-gpus",
            "platforms",
            "catalog",
            "price",
        )
    ),
    *(
        Guess(word, "connect {CLUSTER}", "connects to a cluster")
        for word in ("ssh", "shell", "attach-to")
    ),
    *(
        Guess(word, "help guides/drift-and-expiry", "shows how machines stop and start by schedule")
        for word in ("start", "stop", "autostop", "pause", "resume", "restart")
    ),
    *(Guess(word, "validate", "checks topology files") for word in ("check", "lint", "compile")),
    Guess("format", "fmt", "formats topology files"),
    *(
        guess
        for word in ("cluster", "fleet", "node", "pods", "machine", "instance", "vm")
        for guess in (
            Guess(word, "status", _SHOW_NODES),
            Guess(f"{word} create", "up", _APPLY),
            Guess(f"{word} delete", "destroy --target {RESOURCE}", "deletes one resource"),
            Guess(f"{word} describe", "state show {RESOURCE}", "shows a resource"),
        )
    ),
    Guess("secrets", "config", "shows the stack's configuration, with secrets masked"),
    *(Guess(word, "status", "shows GPUs and cost") for word in ("spend", "usage", "budget")),
    Guess("quota", "offers", "shows regions, GPU types and prices"),
    *(
        Guess(word, "destroy", "deletes every resource of the stack")
        for word in ("rm", "remove", "terminate", "teardown")
    ),
    *(
        Guess(f"{word} NAME", "destroy --target {RESOURCE}", "deletes one resource")
        for word in ("rm", "remove", "terminate", "destroy", "down")
    ),
    *(
        Guess(f"{word} NAME", f"{word} --target {{RESOURCE}}", "works on one resource")
        for word in ("up", "preview", "refresh")
    ),
    Guess("upgrade", "help start/upgrade", "shows how to change to another version"),
    Guess("docs", "help {}", "lists the pages of the documentation"),
    Guess("setup", "doctor", "checks for what would make a run fail"),
    Guess("undo", "stack history", "lists the runs of the stack"),
    Guess("rollback", "stack history", "lists the runs: apply the files of an earlier one"),
)
"""Every guess; the one with the longest fitting pattern answers."""
