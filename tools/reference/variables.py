"""Declare every environment variable that gpuform reads, beside those of platforms' descriptors.

The page of configuration is rendered from this table. A test fails for a variable of the source
that is missing here.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable; `before` names the source that counts if the variable is not set."""

    name: str
    group: str
    meaning: str
    flag: str = ""
    """The flag for the same setting; the flag counts before the variable."""
    before: str = ""
    default: str = ""
    secret: bool = False


GPUFORM: Final = "gpuform's own"
STACKS: Final = "Stacks, state and the passphrase, as Pulumi has them"
BUCKETS: Final = "Credentials of buckets"
KEYS: Final = "Services that keep secrets"
REVIEWS: Final = "Reviews in pull requests"
JOBS: Final = "CI jobs"
COLLECTORS: Final = "Traces and metrics, as OpenTelemetry has them"
MACHINE: Final = "The terminal and the machine"
PLATFORMS: Final = "Platforms, beside their keys"

VARIABLES: Final = (
    Variable(
        "GPUFORM_ALLOW",
        GPUFORM,
        "Permissions for one run, with commas between them. `--allow` adds others. With `pulumi` "
        "only the variable works.",
        flag="--allow",
    ),
    Variable(
        "GPUFORM_ADOPT",
        GPUFORM,
        "Ids, with commas between them, of objects that an interrupted create has created.",
        flag="--adopt",
    ),
    Variable(
        "GPUFORM_CREATE_ANEW",
        GPUFORM,
        "`1` asserts that no existing object comes from an interrupted create.",
        flag="--create-anew",
    ),
    Variable(
        "GPUFORM_APPROVED_BY",
        GPUFORM,
        "Who has approved the run, in words, such as `ada in change 4711`. The stack's history "
        "records it, and `gpuform explain` shows it.",
    ),
    Variable(
        "GPUFORM_READS_ONLY",
        GPUFORM,
        "`1` forbids changes: gpuform sends no request that changes something on a platform, and "
        "writes no state, lock or record. `gpuform mcp` works this way.",
    ),
    Variable(
        "GPUFORM_PROPOSED_TO",
        GPUFORM,
        "Set by `gpuform mcp` for the proposal of an agent: the folder of the project. A secret is "
        "passed on unchanged, or used as the files there use it.",
    ),
    Variable(
        "GPUFORM_SCHEDULERS",
        GPUFORM,
        "Set by `gpuform mcp` for the proposal of an agent: the schedulers to contact.",
    ),
    Variable(
        "GPUFORM_REPAIR",
        GPUFORM,
        "Nodes to repair, with commas between them, each as NODE or NODE=MODE. REJECT and "
        "CANCEL as modes end a proposed repair. `gpuform repair` sets it. With `pulumi up` it is "
        "the only way.",
    ),
    Variable(
        "GPUFORM_REVIEWED_REPAIRS",
        GPUFORM,
        "Set by gpuform while it applies a plan that a person has reviewed: the repairs that the "
        "plan may make.",
    ),
    Variable(
        "GPUFORM_NEW_PASSPHRASE",
        GPUFORM,
        "The new passphrase for `gpuform stack change-secrets-provider passphrase`.",
        default="a prompt",
        secret=True,
    ),
    Variable(
        "GPUFORM_DEST_PASSPHRASE",
        GPUFORM,
        "The passphrase of the other stack for `gpuform state move`.",
        default="a prompt",
        secret=True,
    ),
    Variable(
        "GPUFORM_LEASE_SECONDS",
        GPUFORM,
        "After how many seconds without a renewal the owner of a lock counts as dead, 2 to 3600.",
        default="60",
    ),
    Variable(
        "GPUFORM_OS_USER_PASSWORD",
        GPUFORM,
        "The secret input `os_user_password` of a resource that `pulumi import` imports. Other "
        "secret inputs have variables named `GPUFORM_` and the field's name.",
        secret=True,
    ),
    Variable(
        "GPUFORM_CLOCK",
        GPUFORM,
        "Address of the emulator whose clock counts, only for stacks on this emulator. `gpuform "
        "emulator start` sets it. A run of a stack on real platforms rejects it.",
    ),
    Variable(
        "GPUFORM_EMULATOR",
        GPUFORM,
        "Identity of the emulator at GPUFORM_CLOCK: gpuform rejects another emulator. `gpuform "
        "emulator start` sets it.",
    ),
    Variable(
        "GPUFORM_MOVED",
        GPUFORM,
        "gpuform sets it when a command continues in a project's virtual environment.",
    ),
    Variable(
        "PULUMI_STACK",
        STACKS,
        "The stack to work on.",
        flag="--stack",
        before="the selected stack",
    ),
    Variable(
        "PULUMI_BACKEND_URL",
        STACKS,
        "The place of stacks: a folder or a bucket.",
        before="`backend.url` of Pulumi.yaml, then `gpuform login`",
        default="`file://~`",
    ),
    Variable(
        "PULUMI_CONFIG_PASSPHRASE",
        STACKS,
        "The passphrase of the stack's secrets. It may be empty.",
        before="`PULUMI_CONFIG_PASSPHRASE_FILE`",
        default="a prompt",
        secret=True,
    ),
    Variable(
        "PULUMI_CONFIG_PASSPHRASE_FILE",
        STACKS,
        "A file with the passphrase, relative to the project.",
        default="a prompt",
    ),
    Variable(
        "PULUMI_CLOUD_SECRET_OVERRIDE",
        STACKS,
        "URL of a key to use instead of the stack's own, such as in CI.",
    ),
    Variable(
        "PULUMI_HOME",
        STACKS,
        "Folder of credentials, selections and plugins.",
        default="`~/.pulumi`",
    ),
    Variable(
        "PULUMI_CREDENTIALS_PATH",
        STACKS,
        "Folder of the file that `gpuform login` writes.",
        before="`PULUMI_HOME`",
    ),
    Variable(
        "PULUMI_RUN_PROGRAM",
        STACKS,
        "`true`: `refresh` and `destroy` run the program first.",
        flag="--run-program",
    ),
    Variable(
        "PULUMI_PARALLEL",
        STACKS,
        "Highest number of resource operations at a time.",
        flag="--parallel",
    ),
    Variable(
        "PULUMI_DIY_BACKEND_GZIP",
        STACKS,
        "`true`: gpuform compresses state files.",
        before="`PULUMI_SELF_MANAGED_STATE_GZIP`",
    ),
    Variable(
        "PULUMI_SELF_MANAGED_STATE_GZIP",
        STACKS,
        "The former name of `PULUMI_DIY_BACKEND_GZIP`.",
    ),
    Variable(
        "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS",
        STACKS,
        "`true`: gpuform keeps no backups of state files.",
        before="`PULUMI_SELF_MANAGED_STATE_DISABLE_CHECKPOINT_BACKUPS`",
    ),
    Variable(
        "PULUMI_SELF_MANAGED_STATE_DISABLE_CHECKPOINT_BACKUPS",
        STACKS,
        "The former name of `PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS`.",
    ),
    Variable(
        "PULUMI_IGNORE_AMBIENT_PLUGINS",
        STACKS,
        "`true`: gpuform ignores plugins on PATH.",
    ),
    Variable(
        "PULUMI_CONFIG",
        STACKS,
        "The stack's configuration, which the Pulumi CLI passes to the plugin.",
        secret=True,
    ),
    Variable("AWS_ACCESS_KEY_ID", BUCKETS, "Key of `s3://`.", before="AWS's own files"),
    Variable("AWS_SECRET_ACCESS_KEY", BUCKETS, "Secret of that key.", secret=True),
    Variable("AWS_SESSION_TOKEN", BUCKETS, "Token of temporary keys.", secret=True),
    Variable(
        "AWS_REGION",
        BUCKETS,
        "Region of the bucket, and of a key in AWS KMS.",
        before="`AWS_DEFAULT_REGION`",
        default="`region=` of the URL counts first",
    ),
    Variable("AWS_DEFAULT_REGION", BUCKETS, "Region of the bucket."),
    Variable(
        "AWS_ENDPOINT_URL_S3",
        BUCKETS,
        "Address of an S3 that is not AWS's.",
        before="`AWS_ENDPOINT_URL`",
        default="`endpoint=` of the URL counts first",
    ),
    Variable("AWS_ENDPOINT_URL", BUCKETS, "Address for all services of AWS."),
    Variable("AWS_MAX_ATTEMPTS", BUCKETS, "Highest number of attempts of a request to a bucket."),
    Variable(
        "GOOGLE_CREDENTIALS",
        BUCKETS,
        "Key of a service account as JSON, for `gs://` and Google Cloud KMS.",
        before="`GOOGLE_APPLICATION_CREDENTIALS` and gcloud's own",
        secret=True,
    ),
    Variable("STORAGE_EMULATOR_HOST", BUCKETS, "Address of an emulator of Google's storage."),
    Variable(
        "AZURE_STORAGE_ACCOUNT",
        BUCKETS,
        "Account of `azblob://`.",
        default="`storage_account=` of the URL counts first",
    ),
    Variable(
        "AZURE_STORAGE_KEY",
        BUCKETS,
        "Key of that account.",
        before="`AZURE_STORAGE_SAS_TOKEN`, then Azure's own",
        secret=True,
    ),
    Variable("AZURE_STORAGE_SAS_TOKEN", BUCKETS, "SAS token of that account.", secret=True),
    Variable("AZURE_CLIENT_ID", BUCKETS, "Identity to sign in with, before that of the Azure CLI."),
    Variable(
        "AZURE_KEYVAULT_AUTH_VIA_CLI",
        KEYS,
        "`true`: gpuform uses the sign-in of the Azure CLI for Azure Key Vault.",
    ),
    Variable(
        "GOOGLE_OAUTH_ACCESS_TOKEN",
        KEYS,
        "Token for Google Cloud KMS, if `GOOGLE_CREDENTIALS` is not set.",
        secret=True,
    ),
    Variable(
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS",
        KEYS,
        "Another address of Google Cloud KMS.",
    ),
    Variable(
        "VAULT_SERVER_URL", KEYS, "Address of HashiCorp Vault, for Pulumi.", before="`VAULT_ADDR`"
    ),
    Variable("VAULT_ADDR", KEYS, "Address of HashiCorp Vault."),
    Variable(
        "VAULT_SERVER_TOKEN",
        KEYS,
        "Token of Vault, for Pulumi.",
        before="`VAULT_TOKEN`",
        secret=True,
    ),
    Variable("VAULT_TOKEN", KEYS, "Token of Vault.", before="that of `vault login`", secret=True),
    Variable("VAULT_NAMESPACE", KEYS, "Namespace in Vault."),
    Variable("VAULT_SKIP_VERIFY", KEYS, "`true`: gpuform does not check Vault's certificate."),
    Variable(
        "GITHUB_TOKEN",
        REVIEWS,
        "Token for comments and labels on GitHub.",
        before="`GH_TOKEN`",
        secret=True,
    ),
    Variable(
        "GH_TOKEN", REVIEWS, "The same token, as GitHub's command line names it.", secret=True
    ),
    Variable(
        "GITLAB_TOKEN",
        REVIEWS,
        "Token for comments and labels on GitLab, with the scope `api`.",
        secret=True,
    ),
    Variable(
        "SYSTEM_ACCESSTOKEN",
        REVIEWS,
        "Token for comments, labels and statuses on Azure DevOps: `$(System.AccessToken)`.",
        before="`AZURE_DEVOPS_EXT_PAT`",
        secret=True,
    ),
    Variable(
        "AZURE_DEVOPS_EXT_PAT",
        REVIEWS,
        "A personal access token of Azure DevOps, as its command line names it.",
        secret=True,
    ),
    Variable(
        "BITBUCKET_TOKEN",
        REVIEWS,
        "Token for comments and statuses on Bitbucket: that of a repository, or EMAIL:TOKEN.",
        secret=True,
    ),
    Variable("GITHUB_ACTIONS", REVIEWS, "Says that the code host is GitHub.", flag="--forge"),
    Variable("GITLAB_CI", REVIEWS, "Says that the code host is GitLab.", flag="--forge"),
    Variable(
        "BUILD_REPOSITORY_PROVIDER",
        REVIEWS,
        "`TfsGit` says that the code host is Azure DevOps.",
        flag="--forge",
    ),
    Variable(
        "SYSTEM_COLLECTIONURI",
        REVIEWS,
        "Address of the organization on Azure DevOps.",
        flag="--forge-url",
    ),
    Variable("BUILD_REPOSITORY_NAME", REVIEWS, "The repository.", flag="--repository"),
    Variable(
        "SYSTEM_PULLREQUEST_PULLREQUESTID", REVIEWS, "The pull request.", flag="--pull-request"
    ),
    Variable("SYSTEM_PULLREQUEST_SOURCECOMMITID", REVIEWS, "The commit of the pull request."),
    Variable("BITBUCKET_REPO_FULL_NAME", REVIEWS, "The repository.", flag="--repository"),
    Variable("GITHUB_REPOSITORY", REVIEWS, "The repository.", flag="--repository"),
    Variable("GITHUB_REF", REVIEWS, "Names the pull request.", flag="--pull-request"),
    Variable("GITHUB_EVENT_PATH", REVIEWS, "File of the event, which names the pull request."),
    Variable("GITHUB_SHA", REVIEWS, "The commit, if the event names none."),
    Variable("GITHUB_RUN_ID", REVIEWS, "The job, for a link to it."),
    Variable("GITHUB_SERVER_URL", REVIEWS, "Address of GitHub.", default="`https://github.com`"),
    Variable("GITHUB_API_URL", REVIEWS, "Address of GitHub's API."),
    Variable("GITHUB_STEP_SUMMARY", REVIEWS, "File of the job's summary, which gets the review."),
    Variable("CI_API_V4_URL", REVIEWS, "Address of GitLab's API."),
    Variable("CI_MERGE_REQUEST_PROJECT_ID", REVIEWS, "The project of the merge request."),
    Variable("CI_PROJECT_ID", REVIEWS, "The project, if there is no merge request."),
    Variable("CI_MERGE_REQUEST_IID", REVIEWS, "The merge request.", flag="--pull-request"),
    Variable("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", REVIEWS, "The commit of the merge request."),
    Variable("CI_COMMIT_SHA", REVIEWS, "The commit, if there is no merge request."),
    Variable("CI_COMMIT_BRANCH", REVIEWS, "The branch, if there is no merge request."),
    Variable("CI_JOB_URL", REVIEWS, "The job, for a link to it."),
    Variable(
        "PULUMI_DISABLE_CI_DETECTION",
        JOBS,
        "Any value: this is not a CI job, whatever the other variables say.",
    ),
    Variable("CI", JOBS, "`true`: this is a CI job of another system."),
    Variable("PULUMI_CI_SYSTEM", JOBS, "Name of the system; more below."),
    Variable(
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        COLLECTORS,
        "The address of a collector, such as `http://localhost:4318`. Runs send a trace and the "
        "metrics of the fleet there. Further OTEL_ variables, such as OTEL_EXPORTER_OTLP_HEADERS, "
        "have their standard meaning.",
    ),
    Variable(
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        COLLECTORS,
        "`http/protobuf` or `grpc`.",
        default="`http/protobuf`",
    ),
    Variable(
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        COLLECTORS,
        "How many seconds the end of a run tries to reach the collector, for each of the two.",
        default="5",
    ),
    Variable("OTEL_TRACES_EXPORTER", COLLECTORS, "`otlp`, or `none` for no traces."),
    Variable("OTEL_METRICS_EXPORTER", COLLECTORS, "`otlp`, or `none` for no metrics."),
    Variable("OTEL_SDK_DISABLED", COLLECTORS, "`true`: neither traces nor metrics."),
    Variable("OTEL_SERVICE_NAME", COLLECTORS, "The name of the service.", default="`gpuform`"),
    Variable("OTEL_RESOURCE_ATTRIBUTES", COLLECTORS, "Further attributes of the service."),
    Variable(
        "OTEL_BSP_MAX_QUEUE_SIZE",
        COLLECTORS,
        "How many ended spans may wait for the collector.",
        default="65536",
    ),
    Variable(
        "TRACEPARENT",
        COLLECTORS,
        "The span to which the run's trace belongs, in the form of W3C Trace Context.",
    ),
    Variable("NO_COLOR", MACHINE, "Any value: no colors.", flag="--color"),
    Variable("TERM", MACHINE, "`dumb`: no colors.", flag="--color"),
    Variable("KUBECONFIG", MACHINE, "The kubeconfig files.", default="`~/.kube/config`"),
    Variable("HOME", MACHINE, "Your home, which has Samsung's files in `.scpconf`."),
    Variable("PATH", MACHINE, "Where gpuform finds programs: git, ssh, kubectl, pulumi."),
    Variable("TMPDIR", MACHINE, "Folder of temporary files."),
    Variable("TZ", MACHINE, "The time zone. gpuform restores it after a program has changed it."),
    Variable(
        "TOGETHER_PROJECT_ID",
        PLATFORMS,
        "Project of new clusters and shared volumes that declare no `project_id`. The state keeps "
        "the project: for existing resources the variable does not count.",
        before="`project_id`",
        default="the project of the API key",
    ),
    Variable(
        "SCP_TF_AUTH_URL",
        PLATFORMS,
        "Address of Samsung's IAM, which identifies the environment of a region.",
        before="`scp:environment`, then `auth-url` in `~/.scpconf/config.json`",
    ),
)
"""All variables, by group, in the order of the page."""
