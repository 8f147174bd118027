/** The name under which runs know the process of a manifest. */
export { issuesFault, ManifestChild as ManifestThread } from './manifest-child.js';
